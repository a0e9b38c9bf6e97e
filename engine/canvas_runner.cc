#include "engine/canvas_runner.h"

#include <utility>

#include "samplers/canvas_random.h"

namespace rullama {
namespace {

double SecondsSince(EngineClock::time_point start) {
  return std::chrono::duration<double>(EngineClock::now() - start).count();
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
    } else if (stopping_ || job->channel->cancelled()) {
      job->channel->Push(RequestEnd{.reason = StopReason::kCancelled});
    } else if (auto end = Run(*job); end) {
      job->channel->Push(*end);
    } else {
      job->channel->Push(std::move(end).error());
    }
  }
}

Result<RequestEnd> CanvasRunner::Run(const Job& job) {
  AnswerChannel& channel = *job.channel;
  RequestEnd end{.queue_seconds = SecondsSince(job.submitted)};
  const EngineClock::time_point start = EngineClock::now();
  RL_ASSIGN_OR_RETURN(const auto random, MakeCanvasRandom(options_.random, job.sampling.seed));
  CanvasGeneratorOptions options = options_.generator;
  options.cancelled = channel.cancel_flag();
  options.on_prefill = [&channel](int64_t done, int64_t total) {
    channel.Push(ReadProgress{done, total});
  };
  session_.ForgetSlot(options.slot);
  CanvasGenerator generator(session_, *random, options);
  const Status fed = generator.Feed(job.prompt);
  end.prompt_seconds = SecondsSince(start);
  const auto cancelled = [&end](const Error& error) {
    end.reason = StopReason::kCancelled;
    return error.id == "run.cancelled";
  };
  if (!fed && !cancelled(fed.error())) return tl::unexpected(fed.error());
  if (!fed) return end;

  const EngineClock::time_point first_canvas = EngineClock::now();
  CanvasGenerator::Callbacks callbacks;
  callbacks.on_step = [&](int64_t /*canvas*/, const CanvasStep& step) {
    channel.Push(
        Draft{.step = step.index + 1, .max_steps = step.max_steps, .tokens = step.reply->best});
    return !stopping_ && !channel.cancelled();
  };
  callbacks.on_canvas = [&](std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) channel.Push(DrawnToken{.token = token});
    return !stopping_ && !channel.cancelled();
  };
  const auto outcome = generator.Generate(job.max_tokens, callbacks);
  end.generate_seconds = SecondsSince(first_canvas);
  if (!outcome && !cancelled(outcome.error())) return tl::unexpected(outcome.error());
  if (outcome) {
    end.reason = outcome->reason == StopReason::kStopped ? StopReason::kCancelled : outcome->reason;
  }
  return end;
}

}  // namespace rullama
