#include "engine/canvas_runner.h"

#include <algorithm>
#include <utility>

#include "core/base/clock.h"
#include "engine/session_canvas.h"
#include "samplers/canvas_random.h"

namespace rullama {
namespace {

CanvasDraft DraftOf(int64_t canvas, const CanvasStep& step) {
  CanvasDraft draft{.canvas = canvas,
                    .temperature = step.temperature,
                    .mean_entropy = step.mean_entropy,
                    .ids = step.reply->best,
                    .entropy = step.reply->entropy};
  draft.accepted.reserve(step.reply->accepted.size());
  for (const float mark : step.reply->accepted) draft.accepted.push_back(mark != 0 ? 1 : 0);
  return draft;
}

}  // namespace

CanvasRunner::CanvasRunner(Session& session, CanvasRunnerOptions options,
                           std::shared_ptr<Wakeup> wakeup)
    : session_(session),
      options_(std::move(options)),
      wakeup_(std::move(wakeup)),
      thread_([this] { Loop(); }) {}

CanvasRunner::~CanvasRunner() {
  stopping_ = true;
  wakeup_->Notify();
  thread_.join();
}

void CanvasRunner::Submit(std::unique_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(job));
  }
  wakeup_->Notify();
}

EngineStats CanvasRunner::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting = std::ssize(waiting_);
  return stats;
}

std::unique_ptr<Job> CanvasRunner::TakeJob() {
  const std::lock_guard lock(mutex_);
  stats_.slots_busy = waiting_.empty() ? 0 : 1;
  if (waiting_.empty()) return nullptr;
  std::unique_ptr<Job> job = std::move(waiting_.front());
  waiting_.pop_front();
  return job;
}

void CanvasRunner::Loop() {
  for (;;) {
    const std::unique_ptr<Job> job = TakeJob();
    if (job == nullptr) {
      if (stopping_) return;
      wakeup_->Wait();
    } else if (TakeCancellation(*job)) {
      job->channel->Push(RequestEnd{.reason = StopReason::kCancelled});
    } else if (auto end = Run(*job); end) {
      job->channel->Push(*end);
    } else {
      if (end.error().id == "device.lost") {
        const std::lock_guard lock(mutex_);
        stats_.device_lost = true;
      }
      job->channel->Push(std::move(end).error());
    }
  }
}

bool CanvasRunner::TakeCancellation(const Job& job) const {
  if (stopping_ || (options_.cancelled && *options_.cancelled)) job.channel->Cancel();
  return job.channel->cancelled();
}

size_t CanvasRunner::ReuseRows(const Job& job) {
  const bool goes_on = job.reuse_answers && job.client == holder_ &&
                       held_.size() < job.prompt.size() &&
                       std::equal(held_.begin(), held_.end(), job.prompt.begin());
  if (!goes_on) {
    session_.ForgetSlot(options_.generator.slot);
    held_.clear();
  }
  holder_ = job.client;
  return held_.size();
}

Result<RequestEnd> CanvasRunner::Run(const Job& job) {
  RequestEnd end{.queue_seconds = SecondsSince(job.submitted)};
  RL_ASSIGN_OR_RETURN(const auto random, MakeCanvasRandom(options_.random, job.sampling.seed));
  const auto reused = static_cast<int64_t>(ReuseRows(job));
  end.cached_tokens = reused;
  CanvasGeneratorOptions options = options_.generator;
  options.cancelled = job.channel->cancel_flag();
  const int64_t total = std::ssize(job.prompt);
  job.channel->Push(ReadProgress{reused, total});
  options.on_prefill = [this, &job, reused, total](int64_t done, int64_t /*fed*/) {
    job.channel->Push(ReadProgress{reused + done, total});
    TakeCancellation(job);
  };
  CanvasGenerator generator(session_, *random, options);
  Status status = Read(generator, job, end);
  if (status) status = Write(generator, job, end);
  // The last canvas was not read, nor the rest of a prompt that failed.
  held_.resize(std::min(held_.size(), static_cast<size_t>(session_.past(options.slot))));
  if (!status && status.error().id != "run.cancelled") return tl::unexpected(status.error());
  if (!status) end.reason = StopReason::kCancelled;
  RL_ASSIGN_OR_RETURN(end.at_end, session_.Stats());
  return end;
}

Status CanvasRunner::Read(CanvasGenerator& generator, const Job& job, RequestEnd& end) {
  const EngineClock::time_point start = EngineClock::now();
  // Nothing is compiled between the first canvas and the last.
  if (job.max_tokens != 0) {
    RL_RETURN_IF_ERROR(
        session_.Prepare(options_.generator.canvas_length, DemandMode::kAllRows, kDenoiseGraph));
  }
  const size_t reused = held_.size();
  held_ = job.prompt;
  const Status fed = generator.Feed(std::span(job.prompt).subspan(reused));
  end.prompt_seconds = SecondsSince(start);
  RL_RETURN_IF_ERROR(fed);
  RL_ASSIGN_OR_RETURN(end.after_prompt, session_.Stats());
  return OkStatus();
}

Status CanvasRunner::Write(CanvasGenerator& generator, const Job& job, RequestEnd& end) {
  const EngineClock::time_point start = EngineClock::now();
  AnswerChannel& channel = *job.channel;
  CanvasGenerator::Callbacks callbacks;
  callbacks.on_step = [&](int64_t canvas, const CanvasStep& step) {
    channel.Push(Draft{
        .step = step.index + 1, .max_steps = step.max_steps, .canvas = DraftOf(canvas, step)});
    return !TakeCancellation(job);
  };
  callbacks.on_canvas = [&](std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) channel.Push(DrawnToken{.token = token});
    held_.insert(held_.end(), tokens.begin(), tokens.end());
    return !TakeCancellation(job);
  };
  const auto outcome = generator.Generate(job.max_tokens, callbacks);
  end.generate_seconds = SecondsSince(start);
  if (!outcome) return tl::unexpected(outcome.error());
  end.reason = outcome->reason == StopReason::kStopped ? StopReason::kCancelled : outcome->reason;
  return OkStatus();
}

}  // namespace rullama
