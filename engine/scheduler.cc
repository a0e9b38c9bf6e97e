#include "engine/scheduler.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "engine/cut_points.h"

namespace rullama {
namespace {

// Where only matters that there is a mask.
constexpr std::array kSomeMask = {~uint32_t{0}};

double SecondsBetween(EngineClock::time_point from, EngineClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Ends a job that has no slot.
void PushCancelled(const Job& job) {
  job.channel->Push(RequestEnd{StopReason::kCancelled});
  for (const auto& other : job.choices) PushCancelled(*other);
}

template <typename Jobs>
int64_t CountAnswers(const Jobs& jobs) {
  int64_t answers = std::ssize(jobs);
  for (const auto& job : jobs) answers += std::ssize(job->choices);
  return answers;
}

}  // namespace

Scheduler::Scheduler(Session& session, SchedulerOptions options, std::shared_ptr<Wakeup> wakeup)
    : session_(session),
      options_(std::move(options)),
      wakeup_(std::move(wakeup)),
      batch_(session, options_.graphs, options_.vocabulary),
      table_(options_.slots),
      prefixes_(session, options_.prefix_bytes, options_.warn),
      media_cache_(options_.media_bytes),
      slots_(static_cast<size_t>(options_.slots)) {
  const size_t lanes = session.lanes();
  for (size_t lane = 0; lane < std::max<size_t>(lanes, 1); ++lane) {
    groups_.emplace_back(session, options_.graphs, options_.vocabulary,
                         lanes > 0 ? StepLane(lane) : std::nullopt);
  }
  stats_.slots = options_.slots;
  thread_ = std::thread([this] { Loop(); });
}

Scheduler::~Scheduler() {
  stopping_ = true;
  wakeup_->Notify();
  thread_.join();
}

void Scheduler::Submit(std::unique_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(std::move(job));
  }
  wakeup_->Notify();
}

EngineStats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting += CountAnswers(submitted_);
  return stats;
}

void Scheduler::CountSlots() {
  int64_t busy = 0;
  int64_t paused = 0;
  int64_t tokens = 0;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot]) continue;
    ++busy;
    paused += static_cast<int64_t>(slots_[slot]->job->channel->full());
    tokens += session_.past(static_cast<int32_t>(slot));
  }
  const std::lock_guard lock(mutex_);
  stats_.slots_busy = busy;
  stats_.slots_paused = paused;
  stats_.kv_tokens = tokens;
  stats_.waiting = CountAnswers(waiting_);
  prefixes_.AddTo(stats_);
  media_cache_.AddTo(stats_);
}

void Scheduler::CountStep(StepStats EngineStats::*kind, size_t rows,
                          EngineClock::time_point begin) {
  const double seconds = SecondsBetween(begin, EngineClock::now());
  const std::lock_guard lock(mutex_);
  (stats_.*kind).seconds.Observe(seconds);
  (stats_.*kind).rows.Observe(static_cast<double>(rows));
}

void Scheduler::Loop() {
  while (!stopping_) {
    TakeNewJobs();
    EndCancelled();
    Admit();
    CountSlots();
    const std::optional<int32_t> reader = NextReader();
    const bool wrote = options_.canvas ? DenoiseStep() : DecodeStep(/*all=*/reader.has_value());
    if (reader) ReadChunk(*reader);
    if (!wrote && !reader) wakeup_->Wait();
  }
  while (!started_groups_.empty()) FinishGroup(*started_groups_.front());
  TakeNewJobs();
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot]) End(static_cast<int32_t>(slot), StopReason::kCancelled);
  }
  for (const auto& job : waiting_) PushCancelled(*job);
}

void Scheduler::TakeNewJobs() {
  const std::lock_guard lock(mutex_);
  std::ranges::move(submitted_, std::back_inserter(waiting_));
  submitted_.clear();
}

bool Scheduler::IsCancelled(const Job& job) const {
  return job.channel->cancelled() || (options_.cancelled && *options_.cancelled);
}

void Scheduler::EndCancelled() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const auto at = static_cast<int32_t>(slot);
    // A prompt that others share is read to its end.
    if (slots_[slot] && !slots_[slot]->in_step && IsCancelled(*slots_[slot]->job) &&
        SharersOf(at).empty()) {
      End(at, StopReason::kCancelled);
    }
  }
  std::erase_if(waiting_, [this](const auto& job) {
    const bool all = IsCancelled(*job) &&
                     std::ranges::all_of(job->choices,
                                         [this](const auto& other) { return IsCancelled(*other); });
    if (all) PushCancelled(*job);
    return all;
  });
}

int64_t Scheduler::CapacityOf(const Job& job) const {
  return job.max_context > 0 ? std::min(job.max_context, options_.capacity) : options_.capacity;
}

Result<RowSampling> Scheduler::SamplingOf(Running& running, int32_t position) {
  return SamplingOf(*running.job, running.job->constraint.matcher, position, running.drawn);
}

Result<RowSampling> Scheduler::SamplingOf(const Job& job,
                                          std::optional<constraint::Matcher>& matcher,
                                          int32_t position, int64_t drawn) {
  RowSampling sampling = job.sampling;
  if (!matcher) return sampling;
  int64_t left = CapacityOf(job) - position;
  if (job.max_tokens >= 0) left = std::min(left, job.max_tokens - drawn);
  const EngineClock::time_point begin = EngineClock::now();
  const auto mask = matcher->Mask(left);
  const double seconds = SecondsBetween(begin, EngineClock::now());
  const std::lock_guard lock(mutex_);
  stats_.mask_seconds.Observe(seconds);
  if (!mask) {
    ++stats_.constraint_failures;
    return tl::unexpected(mask.error());
  }
  sampling.mask = *mask;
  return sampling;
}

std::optional<int32_t> Scheduler::NextReader() const {
  for (size_t turn = 0; turn < slots_.size(); ++turn) {
    const size_t slot = (next_reader_ + turn) % slots_.size();
    const auto& running = slots_[slot];
    if (!running || running->writes() || running->reader || running->job->channel->full()) continue;
    return static_cast<int32_t>(slot);
  }
  return std::nullopt;
}

void Scheduler::ReadChunk(int32_t slot) {
  next_reader_ = static_cast<size_t>(slot) + 1;
  Running& running = *slots_[static_cast<size_t>(slot)];
  const std::span<const int32_t> prompt = running.job->prompt;
  const int64_t end = EndOfChunk(running);
  const auto chunk =
      prompt.subspan(static_cast<size_t>(running.read), static_cast<size_t>(end - running.read));
  const auto encoded = EncodeNext(running, end);
  if (!encoded) return EndFailed(slot, encoded.error());
  if (*encoded) return;
  const EngineClock::time_point begin = EngineClock::now();
  const size_t rows = chunk.size();
  const Status status = ReadsChunks(running.job->kind) ? ReadForGeneration(slot, running, chunk)
                                                       : ReadForRows(slot, running, chunk);
  CountStep(&EngineStats::prompt, rows, begin);
  if (!status) EndFailed(slot, status.error());
}

int64_t Scheduler::EndOfChunk(const Running& running) const {
  const Job& job = *running.job;
  const int64_t tokens = std::ssize(job.prompt);
  if (ReadsChunks(job.kind)) {
    const auto cut = std::ranges::upper_bound(job.cuts, running.read);
    return cut == job.cuts.end() ? tokens : *cut;
  }
  return std::min(tokens, running.read + session_.max_rows(RowOutputOf(job.kind).graph));
}

const ProgramGraphs::RowOutput& Scheduler::RowOutputOf(Job::Kind kind) const {
  return kind == Job::Kind::kEmbed ? *options_.graphs.hidden : *options_.graphs.logits;
}

Status Scheduler::ReadForGeneration(int32_t slot, Running& running,
                                    std::span<const int32_t> chunk) {
  const bool last = running.read + std::ssize(chunk) == std::ssize(running.job->prompt);
  if (last && running.job->kind == Job::Kind::kGenerate) {
    return options_.canvas ? ReadForCanvases(slot, running, chunk) : ReadAndDraw(slot, chunk);
  }
  if (running.read == running.reused && running.job->kind == Job::Kind::kGenerate) {
    RowRequest draw{
        .slot = slot, .sampling = running.job->sampling, .top_logprobs = running.job->top_logprobs};
    if (running.job->constraint.matcher) draw.sampling.mask = kSomeMask;
    RL_RETURN_IF_ERROR(PrepareDecode(running, draw));
  }
  RL_RETURN_IF_ERROR(ReadRows(slot, running, chunk));
  TakeChunk(slot, running, chunk);
  return last ? Save(slot) : OkStatus();
}

Status Scheduler::PrepareDecode(const Running& running, const RowRequest& draw) {
  if (options_.canvas || running.job->max_tokens == 0) return OkStatus();
  return batch_.PrepareDecode(draw);
}

Result<RowRequest> Scheduler::DrawOf(int32_t slot, Running& running) {
  const auto last = static_cast<int32_t>(std::ssize(running.job->prompt) - 1);
  RL_ASSIGN_OR_RETURN(const RowSampling sampling, SamplingOf(running, last));
  return RowRequest{.slot = slot, .sampling = sampling, .top_logprobs = running.job->top_logprobs};
}

Status Scheduler::ReadAndDraw(int32_t slot, std::span<const int32_t> chunk) {
  std::vector<int32_t> writers = SharersOf(slot);
  if (chunk.size() == 1) {
    // The plan of one row has one result: the others read the last chunk themselves.
    RL_RETURN_IF_ERROR(Share(slot, writers));
    writers.clear();
  }
  writers.insert(writers.begin(), slot);
  std::vector<RowRequest> draws;
  draws.reserve(writers.size());
  for (const int32_t writer : writers) {
    Running& running = *slots_[static_cast<size_t>(writer)];
    RL_ASSIGN_OR_RETURN(const RowRequest draw, DrawOf(slot, running));
    draws.push_back(draw);
  }
  RL_RETURN_IF_ERROR(PrepareDecode(*slots_[static_cast<size_t>(slot)], draws.front()));
  RL_ASSIGN_OR_RETURN(const auto results, batch_.Read(slot, chunk, draws));
  TakeChunk(slot, *slots_[static_cast<size_t>(slot)], chunk);
  RL_RETURN_IF_ERROR(Share(slot, std::span(writers).subspan(1)));
  RL_ASSIGN_OR_RETURN(const SessionStats stats, session_.Stats());
  for (size_t i = 0; i < writers.size(); ++i) {
    Running& writer = *slots_[static_cast<size_t>(writers[i])];
    if (writer.read < std::ssize(writer.job->prompt)) continue;  // reads the prompt itself
    writer.first_token = EngineClock::now();
    writer.after_prompt = stats;
    TakeResult(writers[i], session_.past(writers[i]), results[i]);
  }
  return OkStatus();
}

void Scheduler::TakeChunk(int32_t slot, Running& running, std::span<const int32_t> chunk) {
  const Job& job = *running.job;
  running.read += std::ssize(chunk);
  table_.Append(slot, chunk);
  const bool at_cut = std::ranges::binary_search(job.cuts, running.read);
  const bool keeps = job.reuse_prefix && !running.goes_on && at_cut;
  if (keeps && IsSnapshotPoint(job.cuts, running.read, options_.chunk)) {
    prefixes_.Keep(slot, std::span(job.prompt).first(static_cast<size_t>(running.read)),
                   job.client);
  }
  job.channel->Push(ReadProgress{running.read, std::ssize(job.prompt), running.reused});
}

Status Scheduler::Save(int32_t slot) {
  const Job& job = *slots_[static_cast<size_t>(slot)]->job;
  RL_ASSIGN_OR_RETURN(Snapshot snapshot, session_.Save(slot, session_.past(slot)));
  job.channel->Push(StoredSnapshot{std::move(snapshot), job.prompt});
  End(slot, StopReason::kEndOfGeneration);
  return OkStatus();
}

Status Scheduler::Load(int32_t slot) {
  const Running& running = *slots_[static_cast<size_t>(slot)];
  const Job& job = *running.job;
  RL_RETURN_IF_ERROR(session_.Restore(slot, job.stored->snapshot));
  table_.Append(slot, job.prompt);
  prefixes_.Keep(slot, job.prompt, job.client);
  End(slot, StopReason::kEndOfGeneration);
  return OkStatus();
}

Status Scheduler::ReadForRows(int32_t slot, Running& running, std::span<const int32_t> chunk) {
  const Job& job = *running.job;
  const bool embeds = job.kind == Job::Kind::kEmbed;
  RL_RETURN_IF_ERROR(batch_.Evaluate(RowOutputOf(job.kind), slot, chunk, evaluated_));
  const int64_t first = running.read;
  running.read += std::ssize(chunk);
  const bool last = running.read == std::ssize(job.prompt);
  if (embeds) {
    const size_t width = evaluated_.size() / chunk.size();
    running.sum.resize(width);
    for (size_t i = 0; i < evaluated_.size(); ++i) running.sum[i % width] += evaluated_[i];
    if (last) job.channel->Push(ResultRows{0, std::move(running.sum)});
  } else {
    job.channel->Push(ResultRows{first, evaluated_});
  }
  if (last) End(slot, StopReason::kEndOfGeneration);
  return OkStatus();
}

void Scheduler::TakeResult(int32_t slot, int64_t past, const RowResult& result) {
  Running& running = *slots_[static_cast<size_t>(slot)];
  Job& job = *running.job;
  if (!result.token) return Fail(slot, result.token.error());
  const int32_t token = *result.token;
  const auto at_limit = [&] { return job.max_tokens >= 0 && running.drawn >= job.max_tokens; };
  if (IsEnd(token)) return End(slot, StopReason::kEndOfGeneration);
  if (at_limit()) return End(slot, StopReason::kMaxTokens);
  job.channel->Push(DrawnToken{token, job.top_logprobs >= 0 ? result.logprobs : LogprobStep{}});
  ++running.drawn;
  bool whole = false;  // the answer is valid, and need not go on
  if (auto& matcher = job.constraint.matcher) {
    if (const Status status = matcher->Accept(token); !status) return Fail(slot, status.error());
    if (matcher->must_end()) return End(slot, StopReason::kEndOfGeneration);
    whole = job.constraint.ends_when_valid && matcher->may_end();
  }
  const StopReason end = StopReason::kEndOfGeneration;
  if (at_limit()) return End(slot, whole ? end : StopReason::kMaxTokens);
  if (past >= CapacityOf(job)) {
    return End(slot, whole ? end : StopReason::kContextFull);
  }
  running.token = token;
  if (options_.drafts.most == 0) return;
  if (running.sequence.empty()) running.sequence = job.prompt;
  running.sequence.push_back(token);
}

void Scheduler::End(int32_t slot, StopReason reason) {
  for (const int32_t sharer : SharersOf(slot)) End(sharer, reason);
  const Running& running = *slots_[static_cast<size_t>(slot)];
  const auto stats = session_.Stats();
  if (!stats) return Fail(slot, stats.error());
  const EngineClock::time_point now = EngineClock::now();
  const bool wrote = running.first_token != EngineClock::time_point();
  const EngineClock::time_point first = wrote ? running.first_token : now;
  running.job->channel->Push(
      RequestEnd{.reason = reason,
                 .cached_tokens = running.reused,
                 .drafts = running.drafts,
                 .queue_seconds = SecondsBetween(running.job->submitted, running.started),
                 .prompt_seconds = SecondsBetween(running.started, first),
                 .encode_seconds = running.encode_seconds,
                 .generate_seconds = SecondsBetween(first, now),
                 .after_prompt = running.after_prompt,
                 .at_end = *stats});
  const Job::Kind kind = running.job->kind;
  if (!ReadsChunks(kind) && kind != Job::Kind::kLoad) table_.Forget(slot);
  if (!running.job->reuse_prefix) table_.Forget(slot);
  Free(slot);
}

void Scheduler::EndFailed(int32_t slot, const Error& error) {
  error.id == "run.cancelled" ? End(slot, StopReason::kCancelled) : Fail(slot, error);
}

void Scheduler::Fail(int32_t slot, const Error& error) {
  for (const int32_t sharer : SharersOf(slot)) Fail(sharer, error);
  if (error.id == "device.lost") {
    const std::lock_guard lock(mutex_);
    stats_.device_lost = true;  // before the reader of the error may ask
  }
  slots_[static_cast<size_t>(slot)]->job->channel->Push(error);
  table_.Forget(slot);
  prefixes_.Lose(slot);
  session_.ForgetSlot(slot);
  Free(slot);
}

void Scheduler::Observe(int32_t slot) const {
  if (options_.observer == nullptr) return;
  const Running& running = *slots_[static_cast<size_t>(slot)];
  const EngineClock::time_point end = EngineClock::now();
  const bool wrote = running.first_token != EngineClock::time_point();
  options_.observer->OnRequest({.number = running.number,
                                .slot = slot,
                                .prompt_tokens = std::ssize(running.job->prompt),
                                .reused_tokens = running.reused,
                                .drawn_tokens = running.drawn,
                                .submitted = running.job->submitted,
                                .started = running.started,
                                .first_token = wrote ? running.first_token : end,
                                .end = end});
}

void Scheduler::Free(int32_t slot) {
  Observe(slot);
  if (canvas_slot_ == slot) canvas_slot_.reset();
  slots_[static_cast<size_t>(slot)].reset();
  table_.Release(slot);
}

bool Scheduler::IsEnd(int32_t token) const {
  return std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end();
}

}  // namespace rullama
