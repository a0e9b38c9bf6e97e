// Gives slots to waiting jobs, with the rows of their prompts that were read before.
//
// Ownership: borrows all. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/status.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/slot_contents.h"
#include "engine/scheduling/slot_jobs.h"
#include "engine/scheduling/waiting_jobs.h"

namespace rullama {

class Admission {
 public:
  Admission(WaitingJobs& waiting, SlotContents& contents, SlotJobs& jobs, EngineCounters& counters)
      : waiting_(waiting), contents_(contents), jobs_(jobs), counters_(counters) {}

  // Lets jobs begin as long as slots are free for the next one.
  void Admit();

 private:
  // Does a job that is done with a slot.
  void DoWithSlot(const Job& job);
  Result<SlotResult> ResultOf(const Job& job);
  // Lets the slot hold the known rows of its job's prompt; `chosen`: rows that it holds already.
  Status Begin(int32_t slot, int64_t chosen);

  WaitingJobs& waiting_;
  SlotContents& contents_;
  SlotJobs& jobs_;
  EngineCounters& counters_;
};

}  // namespace rullama
