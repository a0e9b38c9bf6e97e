// Draws the tokens of jobs that write, in steps over all slots that do.
//
// A session with lanes (session.h) decodes in as many groups of slots. While the step of a group
// runs, the results of another are taken, its next tokens chosen and its next step started, so that
// each device has a step (adr/0019). A job that is cancelled while its slot has a step in flight
// ends after it.
//
// With drafts (docs/drafts.md) a slot has several rows in a step: the token drawn last and those
// that are guessed to follow it. Each row draws its token with the settings of the request and the
// random number of its position. The rows whose token was guessed right stay, the others are given
// up.
//
// Ownership: borrows all but its buffers. Thread safety: one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "engine/scheduling/batch_session.h"
#include "engine/scheduling/draft_maker.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_contents.h"
#include "engine/scheduling/slot_jobs.h"

namespace rullama {

// The rows of one slot in a step, and what they say: the row of its last token, and one for each
// token of its draft.
struct CheckedDraft {
  size_t end = 0;        // the row after those of the slot
  int64_t drafted = 0;   // tokens of the draft
  int64_t accepted = 0;  // of these, the first ones that the model draws, too
};

class TokenDecoder {
 public:
  TokenDecoder(Session& session, const SchedulerOptions& options, SlotContents& contents,
               SlotJobs& jobs, EngineCounters& counters);

  // Starts the step of each group that has none, and takes the results of the group that was
  // started first, or those of all. Returns whether there was something to do.
  bool Step(bool all);
  // Waits for all steps in flight and takes their results.
  void Finish();

 private:
  // Slots whose tokens are drawn in one step, which may be in flight.
  struct Group {
    Group(Session& session, const ProgramGraphs& graphs, int64_t vocabulary, StepLane lane)
        : batch(session, graphs, vocabulary, lane) {}

    BatchSession batch;
    bool started = false;
    EngineClock::time_point begin;
    // The slots and rows of the step; kept for their memory.
    std::vector<int32_t> slots;
    std::vector<RowRequest> rows;
  };

  // Starts a step of the slots that have waited longest for one: an equal share for each group.
  // Returns whether some slot waited.
  bool Start(Group& group);
  void Finish(Group& group);
  void ChooseSlots(Group& group) const;
  // Leaves out slots that need other graphs than the one that has waited longest: a row with
  // several adapters takes AdapterGraphs::several, so that its bytes do not depend on other rows.
  void KeepAlike(std::vector<int32_t>& slots) const;
  // Adds the rows of a slot to the step. Errors: those of SlotJobs::SamplingOf().
  Status AddRows(Group& group, int32_t slot);
  // Counts as many tokens of a draft as right as chance decides.
  [[nodiscard]] CheckedDraft WithChance(CheckedDraft checked);
  // Takes the results of a slot's rows, of which `first` is the first. Returns the row after them.
  size_t TakeRows(std::span<const RowRequest> rows, size_t first,
                  std::span<const RowResult> results);

  Session& session_;
  SlotContents& contents_;
  SlotJobs& jobs_;
  EngineCounters& counters_;
  DraftMaker drafts_;
  const std::optional<AdapterGraphs> adapters_;
  const std::shared_ptr<const std::atomic<double>> acceptance_;  // EngineSetup::draft_acceptance
  std::mt19937 random_;                                          // with it
  std::deque<Group> groups_;
  std::deque<Group*> started_;  // in the order in which they were started
  uint64_t steps_ = 0;          // that were started
};

// `first`: the first row of the slot. Pure function.
[[nodiscard]] CheckedDraft CheckDraft(std::span<const RowRequest> rows, size_t first,
                                      std::span<const RowResult> results);

}  // namespace rullama
