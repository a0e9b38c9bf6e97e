#include "engine/scheduling/text_encoder.h"

#include <algorithm>
#include <utility>

#include "core/base/alternate_stack.h"
#include "core/ir/encoder_names.h"
#include "core/ir/media_names.h"

namespace rullama {

TextEncoder::TextEncoder(Session& session, const ProgramGraphs& graphs, const ModelFacts& facts,
                         MediaEncoder& encoder, std::shared_ptr<const std::atomic<bool>> cancelled,
                         std::shared_ptr<Wakeup> wakeup)
    : session_(session),
      graphs_(graphs),
      width_(facts.width),
      facts_(facts.encoder),
      encoder_(encoder),
      soft_inputs_(facts.width, /*last_seen=*/false),
      cancelled_(std::move(cancelled)),
      wakeup_(std::move(wakeup)) {
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
    std::unique_ptr<Job> job;
    {
      const std::lock_guard lock(mutex_);
      if (!waiting_.empty()) {
        job = std::move(waiting_.front());
        waiting_.pop_front();
      }
    }
    if (job) {
      Run(*job);
    } else {
      wakeup_->Wait();
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& job : waiting_) job->channel->Push(RequestEnd{StopReason::kCancelled});
}

void TextEncoder::Run(Job& job) {
  if (job.channel->cancelled() || (cancelled_ && *cancelled_)) {
    return job.channel->Push(RequestEnd{StopReason::kCancelled});
  }
  counters_.Update([](EngineStats& stats) { stats.slots_busy = 1; });
  counters_.UpdateSlot(0,
                       [this](SlotActivity& state) { state = {.task = ++taken_, .busy = true}; });
  const EngineClock::time_point begin = EngineClock::now();
  Result<std::vector<float>> vector = Encode(job);
  counters_.CountStep(&EngineStats::prompt, job.prompt.size(), begin);
  counters_.Update([](EngineStats& stats) { stats.slots_busy = 0; });
  counters_.UpdateSlot(0, [](SlotActivity& state) { state.busy = false; });
  if (!vector) return job.channel->Push(std::move(vector).error());
  job.channel->Push(ResultRows{0, *std::move(vector)});
  job.channel->Push(RequestEnd{});
}

Status TextEncoder::SetSoftRows(const Job& job) {
  std::vector<SoftTokens> encoded;
  std::vector<SoftRows> rows;
  for (const PlacedMedium& placed : job.media) {
    RL_ASSIGN_OR_RETURN(SoftTokens soft, encoder_.Encode(*placed.medium));
    rows.push_back({.first = placed.first, .count = soft.tokens});
    encoded.push_back(std::move(soft));
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i].values = encoded[i].values;
  for (int32_t& token : step_.tokens) token = std::max(token, 0);
  return soft_inputs_.Set(session_, rows, 0, std::ssize(job.prompt));
}

Result<std::vector<float>> TextEncoder::Encode(const Job& job) {
  const std::span<const int32_t> ids = job.prompt;
  step_.SetConsecutive(ids, /*past=*/0, /*slot_of_all=*/0, DemandMode::kAllRows);
  step_.graph = graphs_.hidden->graph;
  if (!job.media.empty()) {
    step_.graph = *graphs_.media;
    RL_RETURN_IF_ERROR(SetSoftRows(job));
  }
  last_seen_.clear();
  for (const int32_t position : step_.pos) {
    last_seen_.push_back(position + static_cast<int32_t>(facts_.radius));
  }
  RL_RETURN_IF_ERROR(
      session_.SetInput(media_names::kLastSeen, std::as_bytes(std::span(last_seen_))));
  RL_RETURN_IF_ERROR(session_.Run(step_));
  RL_ASSIGN_OR_RETURN(std::vector<float> mean, MeanOfRows(ids.size()));
  if (!graphs_.head) return mean;
  RL_RETURN_IF_ERROR(session_.SetInput(encoder_names::kMean, std::as_bytes(std::span(mean))));
  // The graph reads no token, but a step says by them how many rows it has.
  step_.SetConsecutive(ids.first(1), /*past=*/0, /*slot_of_all=*/0, DemandMode::kAllRows);
  step_.graph = *graphs_.head;
  RL_RETURN_IF_ERROR(session_.Run(step_));
  std::vector<float> embedding(static_cast<size_t>(facts_.embedding));
  RL_RETURN_IF_ERROR(
      session_.ReadOutput(encoder_names::kEmbedding, std::as_writable_bytes(std::span(embedding))));
  return embedding;
}

Result<std::vector<float>> TextEncoder::MeanOfRows(size_t rows) {
  const auto width = static_cast<size_t>(width_);
  rows_.resize(rows * width);
  RL_RETURN_IF_ERROR(
      session_.ReadOutput(encoder_names::kHidden, std::as_writable_bytes(std::span(rows_))));
  std::vector<double> sums(width);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t column = 0; column < width; ++column) sums[column] += rows_[i * width + column];
  }
  std::vector<float> mean(width);
  for (size_t column = 0; column < width; ++column) {
    mean[column] = static_cast<float>(sums[column] / static_cast<double>(rows));
  }
  return mean;
}

}  // namespace rullama
