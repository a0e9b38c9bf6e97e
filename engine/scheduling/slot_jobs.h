// The jobs that have a slot: from getting it until they end, and what happens to a slot then.
//
// Ownership: borrows all but the jobs. Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/matcher.h"
#include "core/runtime/session.h"
#include "engine/scheduling/batch_session.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/running_job.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_contents.h"

namespace rullama {

class SlotJobs {
 public:
  SlotJobs(Session& session, const SchedulerOptions& options, SlotContents& contents,
           EngineCounters& counters);

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(slots_.size()); }
  // The job of a slot; null if the slot is free.
  [[nodiscard]] RunningJob* Find(int32_t slot);
  [[nodiscard]] const RunningJob* Find(int32_t slot) const;
  // The job of a slot that has one.
  [[nodiscard]] RunningJob& At(int32_t slot) { return *slots_[static_cast<size_t>(slot)]; }
  [[nodiscard]] const RunningJob& At(int32_t slot) const {
    return *slots_[static_cast<size_t>(slot)];
  }
  // The first slot, from `turn` on and around, whose job fulfils the condition.
  template <typename Condition>
  [[nodiscard]] std::optional<int32_t> FirstFrom(int32_t turn, const Condition& condition) const {
    for (int32_t i = 0; i < size(); ++i) {
      const int32_t slot = (turn + i) % size();
      const RunningJob* running = Find(slot);
      if (running != nullptr && condition(*running)) return slot;
    }
    return std::nullopt;
  }
  // The slots whose jobs wait for `slot` to read their prompt.
  [[nodiscard]] std::vector<int32_t> SharersOf(int32_t slot) const;

  // Gives a slot, which is free, to a job. `reader`: as RunningJob::reader.
  void Start(const SlotTable::Choice& choice, std::unique_ptr<Job> job,
             std::optional<int32_t> reader);

  // The tokens that may be drawn after the first `past` rows of the slot.
  [[nodiscard]] int64_t RemainingOf(const RunningJob& running, int64_t past) const;

  // The settings of the next draw, with its mask. `position`: of the row whose successor is drawn.
  // Errors: constraint.dead_end.
  Result<RowSampling> SamplingOf(RunningJob& running, int32_t position);
  // The same for a draw after `drawn` tokens, with the mask of `matcher`.
  Result<RowSampling> SamplingOf(const Job& job, std::optional<constraint::Matcher>& matcher,
                                 int32_t position, int64_t drawn);
  // Hands out a token that was drawn after the first `past` rows of the slot, or ends the job if it
  // was the last.
  void TakeToken(int32_t slot, int64_t past, const RowResult& result);

  // The following end the job of a slot, and with it those that share its prompt.
  void End(int32_t slot, StopReason reason);
  // As cancelled if the device was told to stop, so that the rows of the steps before stay, else
  // with the error.
  void EndFailed(int32_t slot, const Error& error);
  // With an error; the slot's rows are given up.
  void Fail(int32_t slot, const Error& error);

  // Ends the jobs that were cancelled, but for those in a step, and those whose prompt others wait
  // for.
  void EndCancelled();
  void EndAll();

 private:
  // Tells of the job that gets the slot.
  void ShowStart(int32_t slot);
  // Tells that the job of the slot is over.
  void ShowEnd(int32_t slot);
  void Free(int32_t slot);
  // Tells the observer of the job that leaves the slot.
  void Observe(int32_t slot) const;

  Session& session_;
  const SchedulerOptions& options_;
  SlotContents& contents_;
  EngineCounters& counters_;
  std::vector<std::optional<RunningJob>> slots_;
  uint64_t started_ = 0;
};

}  // namespace rullama
