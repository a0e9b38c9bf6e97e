#include "engine/scheduling/scheduler.h"

#include <utility>

#include "core/base/alternate_stack.h"
#include "engine/scheduling/canvas_writer.h"

namespace rullama {
namespace {

// Snapshots are written when nothing else is to do.
constexpr std::chrono::milliseconds kIdleBeforeStoring{1'000};
constexpr std::chrono::milliseconds kBetweenStores{10};

}  // namespace

Scheduler::Scheduler(Session& session, SchedulerOptions options, std::shared_ptr<Wakeup> wakeup)
    : session_(session),
      options_(std::move(options)),
      wakeup_(std::move(wakeup)),
      contents_(session, options_),
      jobs_(session, options_, contents_, counters_),
      admission_(waiting_, contents_, jobs_, counters_),
      canvases_(options_.canvas
                    ? std::make_optional<CanvasLoop>(session, CanvasWritersOf(session, options_),
                                                     options_, contents_, jobs_, counters_)
                    : std::nullopt),
      reader_(session, options_, contents_, jobs_, canvases_ ? &*canvases_ : nullptr, counters_),
      pace_(options_.max_gap) {
  if (!canvases_) decoder_.emplace(session, options_, contents_, jobs_, counters_);
  counters_.SetSlots(options_.slots);
  thread_ = std::thread([this] {
    const AlternateStack stack;
    Loop();
  });
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
  EngineStats stats = counters_.Read();
  for (const auto& job : submitted_) stats.waiting += AnswersOf(*job);
  return stats;
}

void Scheduler::Loop() {
  while (!stopping_) {
    TakeNewJobs();
    EndCancelled();
    admission_.Admit();
    CountSlots();
    if (reads_ && reader_.ReadNext(pace_)) continue;
    reader_.BeginRound();
    reads_ = reader_.HasWork();
    const bool wrote = canvases_ ? canvases_->Step() : decoder_->Step(/*all=*/reads_);
    TakeTime(wrote);
    if (!wrote && !reads_) WaitForWork();
  }
  if (decoder_) decoder_->Finish();
  TakeNewJobs();
  jobs_.EndAll();
  waiting_.EndAll();
  StoreAll();
}

void Scheduler::TakeTime(bool wrote) {
  if (!wrote) return pace_.WritesNothing();
  const auto gap = pace_.TakeTokens(EngineClock::now(), decoding_);
  const auto advice = gap ? pace_.AdviceOn(*gap) : std::nullopt;
  constexpr int64_t kWarnAt = 2;  // the first one may have waited for a compiler
  if (advice && ++advices_ == kWarnAt && options_.warn) options_.warn(*advice);
}

void Scheduler::WaitForWork() {
  if (!contents_.HasUnstored()) {
    wakeup_->Wait();
    idle_wait_ = kIdleBeforeStoring;
  } else if (wakeup_->WaitFor(idle_wait_)) {
    idle_wait_ = kIdleBeforeStoring;
  } else {
    if (options_.snapshots->idle()) contents_.StoreNext();
    idle_wait_ = kBetweenStores;
  }
}

void Scheduler::StoreAll() {
  if (!options_.snapshots) return;
  while (contents_.HasUnstored() && !options_.snapshots->is_late()) contents_.StoreNext();
  options_.snapshots->Flush();
}

void Scheduler::TakeNewJobs() {
  const std::lock_guard lock(mutex_);
  waiting_.Add(std::exchange(submitted_, {}));
}

void Scheduler::EndCancelled() {
  jobs_.EndCancelled();
  waiting_.EndCancelled([this](const Job& job) { return options_.IsCancelled(job); });
}

void Scheduler::CountSlots() {
  int64_t busy = 0;
  int64_t paused = 0;
  int64_t tokens = 0;
  decoding_ = 0;
  for (int32_t slot = 0; slot < jobs_.size(); ++slot) {
    const RunningJob* running = jobs_.Find(slot);
    if (running == nullptr) continue;
    ++busy;
    const bool full = running->job->channel->full();
    paused += static_cast<int64_t>(full);
    decoding_ += static_cast<int64_t>(running->writes() && !full);
    tokens += session_.past(slot);
    counters_.UpdateSlot(slot, [&](SlotActivity& state) {
      state.tokens = session_.past(slot);
      state.drawn = running->drawn;
      state.remaining = jobs_.RemainingOf(*running, session_.past(slot));
    });
  }
  counters_.Update([&](EngineStats& stats) {
    stats.slots_busy = busy;
    stats.slots_paused = paused;
    stats.kv_tokens = tokens;
    stats.waiting = waiting_.answers();
    contents_.AddTo(stats);
    reader_.AddTo(stats);
  });
}

}  // namespace rullama
