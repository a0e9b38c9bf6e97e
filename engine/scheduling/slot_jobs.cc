#include "engine/scheduling/slot_jobs.h"

#include <algorithm>
#include <utility>

#include "engine/media/soft_row_ids.h"

namespace rullama {

SlotJobs::SlotJobs(Session& session, const SchedulerOptions& options, SlotContents& contents,
                   EngineCounters& counters)
    : session_(session),
      options_(options),
      contents_(contents),
      counters_(counters),
      slots_(static_cast<size_t>(options.slots)) {}

RunningJob* SlotJobs::Find(int32_t slot) {
  auto& running = slots_[static_cast<size_t>(slot)];
  return running ? &*running : nullptr;
}

const RunningJob* SlotJobs::Find(int32_t slot) const {
  const auto& running = slots_[static_cast<size_t>(slot)];
  return running ? &*running : nullptr;
}

std::vector<int32_t> SlotJobs::SharersOf(int32_t slot) const {
  std::vector<int32_t> sharers;
  for (int32_t other = 0; other < size(); ++other) {
    const RunningJob* running = Find(other);
    if (running != nullptr && running->reader == slot) sharers.push_back(other);
  }
  return sharers;
}

void SlotJobs::Start(const SlotTable::Choice& choice, std::unique_ptr<Job> job,
                     std::optional<int32_t> reader) {
  contents_.Take(choice, job->space);
  RunningJob running;
  if (!job->media.empty()) {
    running.media =
        PromptEncoder(std::move(job->media), SoftRowsOf(job->prompt, options_.whole_pictures));
  }
  running.job = std::move(job);
  running.reader = reader;
  running.after_answer = choice.goes_on;
  running.number = ++started_;
  running.started = EngineClock::now();
  slots_[static_cast<size_t>(choice.slot)] = std::move(running);
  ShowStart(choice.slot);
}

void SlotJobs::ShowStart(int32_t slot) {
  const RunningJob& running = At(slot);
  counters_.UpdateSlot(slot, [&](SlotActivity& state) {
    state = {.task = static_cast<int64_t>(running.number),
             .tokens = contents_.tokens(slot),
             .busy = true,
             .drafts = running.job->max_draft != 0 && options_.drafts.most > 0,
             .remaining = RemainingOf(running, std::ssize(running.job->prompt)),
             .seed = running.job->sampling.seed,
             .note = running.job->note};
  });
}

void SlotJobs::ShowEnd(int32_t slot) {
  counters_.UpdateSlot(slot, [&](SlotActivity& state) {
    state = {.task = state.task, .tokens = contents_.tokens(slot)};
  });
}

int64_t SlotJobs::RemainingOf(const RunningJob& running, int64_t past) const {
  const Job& job = *running.job;
  const int64_t room = options_.CapacityOf(job) - std::max<int64_t>(past, std::ssize(job.prompt));
  return job.max_tokens < 0 ? room : std::min(room, job.max_tokens - running.drawn);
}

Result<RowSampling> SlotJobs::SamplingOf(RunningJob& running, int32_t position) {
  Job& job = *running.job;
  if (job.thoughts) {
    if (const auto mask = job.thoughts->Mask(); !mask.empty()) {
      RowSampling sampling = job.sampling;
      sampling.mask = mask;
      return sampling;
    }
  }
  return SamplingOf(job, job.constraint.matcher, position, running.drawn);
}

Result<RowSampling> SlotJobs::SamplingOf(const Job& job,
                                         std::optional<constraint::Matcher>& matcher,
                                         int32_t position, int64_t drawn) {
  RowSampling sampling = job.sampling;
  if (!matcher) return sampling;
  int64_t left = options_.CapacityOf(job) - position;
  if (job.max_tokens >= 0) left = std::min(left, job.max_tokens - drawn);
  const EngineClock::time_point begin = EngineClock::now();
  const auto mask = matcher->Mask(left);
  const double seconds = SecondsBetween(begin, EngineClock::now());
  counters_.Update([&](EngineStats& stats) {
    stats.mask_seconds.Observe(seconds);
    if (!mask) ++stats.constraint_failures;
  });
  if (!mask) return tl::unexpected(mask.error());
  sampling.mask = *mask;
  return sampling;
}

void SlotJobs::TakeToken(int32_t slot, int64_t past, const RowResult& result) {
  RunningJob& running = At(slot);
  Job& job = *running.job;
  if (!result.token) return Fail(slot, result.token.error());
  const int32_t token = *result.token;
  const auto at_limit = [&] { return job.max_tokens >= 0 && running.drawn >= job.max_tokens; };
  if (at_limit()) return End(slot, StopReason::kMaxTokens);  // of no tokens
  if (options_.IsEnd(token)) {
    if (job.top_logprobs >= 0) running.end = result.logprobs;
    return End(slot, StopReason::kEndOfGeneration);
  }
  job.channel->Push(DrawnToken{token, job.top_logprobs >= 0 ? result.logprobs : LogprobStep{}});
  ++running.drawn;
  if (job.thoughts) job.thoughts->Accept(token);
  bool whole = false;  // the answer is valid, and need not continue
  if (auto& matcher = job.constraint.matcher) {
    if (const Status status = matcher->Accept(token); !status) return Fail(slot, status.error());
    if (matcher->must_end()) return End(slot, StopReason::kEndOfGeneration);
    whole = job.constraint.ends_when_valid && matcher->may_end();
  }
  const StopReason end = StopReason::kEndOfGeneration;
  if (at_limit()) return End(slot, whole ? end : StopReason::kMaxTokens);
  if (past >= options_.CapacityOf(job)) return End(slot, whole ? end : StopReason::kContextFull);
  running.token = token;
  if (options_.drafts.most == 0) return;
  if (running.sequence.empty()) running.sequence = job.prompt;
  running.sequence.push_back(token);
}

void SlotJobs::End(int32_t slot, StopReason reason) {
  for (const int32_t sharer : SharersOf(slot)) End(sharer, reason);
  const RunningJob& running = At(slot);
  const auto stats = session_.Stats();
  if (!stats) return Fail(slot, stats.error());
  const EngineClock::time_point now = EngineClock::now();
  const EngineClock::time_point first = running.wrote() ? running.first_token : now;
  const Job::Kind kind = running.job->kind;
  const bool reusable = ReadsChunks(kind) || kind == Job::Kind::kLoad;
  if (!reusable || !running.job->reuse_prefix) contents_.Forget(slot);
  ShowEnd(slot);  // before the reader of the end may ask
  running.job->channel->Push(
      RequestEnd{.reason = reason,
                 .end = running.end,
                 .costs = {.cached_tokens = running.reused,
                           .drafts = running.drafts,
                           .queue_seconds = SecondsBetween(running.job->submitted, running.started),
                           .prompt_seconds = SecondsBetween(running.started, first),
                           .encode_seconds = running.encode_seconds,
                           .generate_seconds = SecondsBetween(first, now),
                           .after_prompt = running.after_prompt,
                           .at_end = *stats}});
  Free(slot);
}

void SlotJobs::EndFailed(int32_t slot, const Error& error) {
  error.id == "run.cancelled" ? End(slot, StopReason::kCancelled) : Fail(slot, error);
}

void SlotJobs::Fail(int32_t slot, const Error& error) {
  for (const int32_t sharer : SharersOf(slot)) Fail(sharer, error);
  if (error.id == "device.lost") {  // before the reader of the error may ask
    counters_.Update([](EngineStats& stats) { stats.device_lost = true; });
  }
  contents_.Lose(slot);
  ShowEnd(slot);
  At(slot).job->channel->Push(error);
  Free(slot);
}

void SlotJobs::EndCancelled() {
  for (int32_t slot = 0; slot < size(); ++slot) {
    const RunningJob* running = Find(slot);
    if (running != nullptr && !running->in_step && options_.IsCancelled(*running->job) &&
        SharersOf(slot).empty()) {
      End(slot, StopReason::kCancelled);
    }
  }
}

void SlotJobs::EndAll() {
  for (int32_t slot = 0; slot < size(); ++slot) {
    if (Find(slot) != nullptr) End(slot, StopReason::kCancelled);
  }
}

void SlotJobs::Observe(int32_t slot) const {
  if (options_.observer == nullptr) return;
  const RunningJob& running = At(slot);
  const EngineClock::time_point end = EngineClock::now();
  options_.observer->OnRequest({.number = running.number,
                                .slot = slot,
                                .prompt_tokens = std::ssize(running.job->prompt),
                                .reused_tokens = running.reused,
                                .drawn_tokens = running.drawn,
                                .submitted = running.job->submitted,
                                .started = running.started,
                                .first_token = running.wrote() ? running.first_token : end,
                                .end = end});
}

void SlotJobs::Free(int32_t slot) {
  Observe(slot);
  slots_[static_cast<size_t>(slot)].reset();
  contents_.Release(slot);
}

}  // namespace rullama
