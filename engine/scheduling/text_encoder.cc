#include "engine/scheduling/text_encoder.h"

#include <algorithm>
#include <utility>

#include "core/base/alternate_stack.h"
#include "core/ir/encoder_names.h"
#include "core/ir/media_names.h"

namespace rullama {

TextEncoder::TextEncoder(Session& session, Options options, std::shared_ptr<Wakeup> wakeup)
    : session_(session),
      options_(std::move(options)),
      soft_inputs_(options_.width, /*last_seen=*/false),
      wakeup_(std::move(wakeup)),
      pack_({.rows = std::min(options_.shared_rows, session.max_t(options_.graphs.hidden->graph)),
             .texts = kMaxTextsOfStep,
             .alignment = options_.text_alignment}) {
  counters_.SetSlots(1);
  thread_ = std::thread([this] {
    const AlternateStack stack;
    Loop();
  });
}

TextEncoder::~TextEncoder() {
  stopping_ = true;
  wakeup_->Notify();
  thread_.join();
}

void TextEncoder::Submit(std::unique_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(job));
  }
  wakeup_->Notify();
}

EngineStats TextEncoder::stats() const {
  EngineStats stats = counters_.Read();
  const std::lock_guard lock(mutex_);
  stats.waiting = std::ssize(waiting_);
  return stats;
}

void TextEncoder::Loop() {
  while (!stopping_) {
    const Jobs jobs = TakeJobs();
    if (jobs.empty()) {
      wakeup_->Wait();
    } else {
      Run(jobs);
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& job : waiting_) job->channel->Push(RequestEnd{StopReason::kCancelled});
}

TextEncoder::Jobs TextEncoder::TakeJobs() {
  Jobs jobs;
  pack_.Clear();
  const bool all_cancelled = options_.cancelled && *options_.cancelled;
  const std::lock_guard lock(mutex_);
  while (!waiting_.empty()) {
    const Job& next = *waiting_.front();
    if (all_cancelled || next.channel->cancelled()) {
      next.channel->Push(RequestEnd{StopReason::kCancelled});
    } else if (!next.media.empty()) {
      if (!jobs.empty()) break;
      jobs.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      break;
    } else {
      if (!pack_.Add(next.prompt)) break;
      jobs.push_back(std::move(waiting_.front()));
    }
    waiting_.pop_front();
  }
  return jobs;
}

void TextEncoder::Run(const Jobs& jobs) {
  const EngineClock::time_point begin = EngineClock::now();
  taken_ += std::ssize(jobs);
  counters_.Update([](EngineStats& stats) { stats.slots_busy = 1; });
  counters_.UpdateSlot(0, [this](SlotActivity& state) { state = {.task = taken_, .busy = true}; });
  const Status read = ReadRows(jobs);
  size_t tokens = 0;
  for (const auto& job : jobs) tokens += job->prompt.size();
  std::vector<Result<std::vector<float>>> vectors;
  if (read) {
    vectors = EmbeddingsOf(jobs);
  } else {
    vectors.assign(jobs.size(), tl::unexpected(read.error()));
  }
  // Counted first: who has its vector sees the step in the statistics.
  counters_.CountStep(&EngineStats::prompt, tokens, begin);
  counters_.Update([](EngineStats& stats) { stats.slots_busy = 0; });
  counters_.UpdateSlot(0, [](SlotActivity& state) { state.busy = false; });
  for (size_t i = 0; i < jobs.size(); ++i) {
    AnswerChannel& channel = *jobs[i]->channel;
    if (!vectors[i]) {
      channel.Push(std::move(vectors[i]).error());
      continue;
    }
    channel.Push(ResultRows{0, *std::move(vectors[i])});
    channel.Push(RequestEnd{});
  }
}

Status TextEncoder::SetSoftRows(const Job& job, StepRows& step) {
  std::vector<SoftTokens> encoded;
  std::vector<SoftRows> rows;
  for (const PlacedMedium& placed : job.media) {
    RL_ASSIGN_OR_RETURN(SoftTokens soft, options_.encoder->Encode(*placed.medium));
    rows.push_back({.first = placed.first, .count = soft.tokens});
    encoded.push_back(std::move(soft));
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i].values = encoded[i].values;
  for (int32_t& token : step.tokens) token = std::max(token, 0);
  return soft_inputs_.Set(session_, rows, 0, std::ssize(job.prompt));
}

Status TextEncoder::ReadRows(const Jobs& jobs) {
  const Job& job = *jobs.front();
  if (job.media.empty()) {
    step_ = pack_.step();
    step_.graph = options_.graphs.hidden->graph;
  } else {
    step_.SetConsecutive(job.prompt, /*past=*/0, /*slot_of_all=*/0, DemandMode::kAllRows);
    step_.graph = *options_.graphs.media;
    RL_RETURN_IF_ERROR(SetSoftRows(job, step_));
  }
  last_seen_.clear();
  for (const int32_t position : step_.pos) {
    last_seen_.push_back(position + static_cast<int32_t>(options_.facts.radius));
  }
  RL_RETURN_IF_ERROR(
      session_.SetInput(media_names::kLastSeen, std::as_bytes(std::span(last_seen_))));
  RL_RETURN_IF_ERROR(session_.Run(step_));
  rows_.resize(step_.tokens.size() * static_cast<size_t>(options_.width));
  return session_.ReadOutput(encoder_names::kHidden, std::as_writable_bytes(std::span(rows_)));
}

std::vector<Result<std::vector<float>>> TextEncoder::EmbeddingsOf(const Jobs& jobs) {
  means_.clear();
  for (size_t i = 0; i < jobs.size(); ++i) {
    const int64_t first = jobs[i]->media.empty() ? pack_.first_rows()[i] : 0;
    AddMean(first, std::ssize(jobs[i]->prompt));
  }
  const bool has_head = options_.graphs.head.has_value();
  const auto at_once = has_head ? static_cast<size_t>(options_.shared_means) : jobs.size();
  const auto width = static_cast<size_t>(has_head ? options_.facts.embedding : options_.width);
  std::vector<Result<std::vector<float>>> vectors;
  for (size_t first = 0; first < jobs.size(); first += at_once) {
    const size_t count = std::min(at_once, jobs.size() - first);
    const Status run = has_head ? RunHead(first, count) : OkStatus();
    const std::vector<float>& found = has_head ? embeddings_ : means_;
    for (size_t i = 0; i < count; ++i) {
      if (!run) {
        vectors.emplace_back(tl::unexpected(run.error()));
        continue;
      }
      const auto begin = found.begin() + static_cast<std::ptrdiff_t>(i * width);
      vectors.emplace_back(std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(width)));
    }
  }
  return vectors;
}

Status TextEncoder::RunHead(size_t first, size_t count) {
  const auto width = static_cast<size_t>(options_.width);
  const std::span<const float> means = std::span(means_).subspan(first * width, count * width);
  RL_RETURN_IF_ERROR(session_.SetInput(encoder_names::kMean, std::as_bytes(means)));
  // The graph reads no token, but a step says by them how many rows it has.
  step_.SetConsecutive(std::vector<int32_t>(count), /*past=*/0, /*slot_of_all=*/0,
                       DemandMode::kAllRows);
  step_.graph = *options_.graphs.head;
  RL_RETURN_IF_ERROR(session_.Run(step_));
  embeddings_.resize(count * static_cast<size_t>(options_.facts.embedding));
  return session_.ReadOutput(encoder_names::kEmbedding,
                             std::as_writable_bytes(std::span(embeddings_)));
}

void TextEncoder::AddMean(int64_t first, int64_t count) {
  const auto width = static_cast<size_t>(options_.width);
  sums_.assign(width, 0.0);
  for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + count); ++i) {
    for (size_t column = 0; column < width; ++column) sums_[column] += rows_[i * width + column];
  }
  for (const double sum : sums_) {
    means_.push_back(static_cast<float>(sum / static_cast<double>(count)));
  }
}

}  // namespace rullama
