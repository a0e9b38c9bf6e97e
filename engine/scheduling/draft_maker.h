// Guesses what jobs are going to write, so that a decode step can check several tokens at once.
//
// Ownership: borrows all but its buffers. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/matcher.h"
#include "core/runtime/session.h"
#include "engine/drafts/draft_length.h"
#include "engine/drafts/draft_request.h"
#include "engine/scheduling/batch_session.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_jobs.h"

namespace rullama {

class DraftMaker {
 public:
  DraftMaker(Session& session, const SchedulerOptions& options, SlotJobs& jobs,
             EngineCounters& counters)
      : session_(session), options_(options), jobs_(jobs), counters_(counters) {}

  // Sets the drafts of slots that are about to write, all slots of a step. Errors: those of the
  // draft model.
  Status Make(std::span<const int32_t> writing);
  // Adds a row for each token of the slot's draft, up to one that the answer may not have. Their
  // masks are valid until the next Make().
  void AddRows(int32_t slot, std::vector<RowRequest>& rows);
  // After a step with a draft.
  void Count(RunningJob& running, int64_t drafted, int64_t accepted);
  // After any decode step, which began at `begin`.
  void CountStep(size_t rows, EngineClock::time_point begin);

 private:
  // The tokens that the next draft of a slot may have, in at most `rows` rows.
  [[nodiscard]] int64_t MostFor(int32_t slot, int64_t rows) const;
  // The length of a draft by how much of the last one was right.
  [[nodiscard]] int64_t LengthAfterLast(const RunningJob& running, int64_t most) const;
  // The probability that tokens of the slot's next draft of the assistant are right.
  [[nodiscard]] DraftAcceptance AcceptanceOf(const RunningJob& running) const;
  // The length of a draft of the assistant, from how many tokens of the slot's last drafts were
  // right, where `others` slots decode, too.
  [[nodiscard]] int64_t LengthThatPays(const RunningJob& running, int64_t others,
                                       int64_t most) const;
  Status Draft();
  // Takes the drafts of requests_ to their jobs.
  void TakeDrafts();
  // After a draft of the assistant was checked, or was cut to nothing.
  void CountGuess(RunningJob& running, int64_t drafted, int64_t accepted);
  void WarnOfWrongDrafts(int64_t accepted);

  Session& session_;
  const SchedulerOptions& options_;
  SlotJobs& jobs_;
  EngineCounters& counters_;
  DraftCosts costs_;
  DraftAcceptance acceptance_;          // of the assistant's drafts in all answers
  int64_t checked_ = 0;                 // drafts of the assistant
  int64_t began_right_ = 0;             // of these, those whose first token was right
  std::vector<DraftRequest> requests_;  // kept for its memory
  std::deque<std::optional<constraint::Matcher>> matchers_;  // of the rows of drafts
};

// The most tokens of the next draft after one of `drafted` tokens, of which `accepted` were right:
// twice as many if all were, else one more than were right; within [1, most]. Pure function.
[[nodiscard]] int64_t NextDraftLength(int64_t drafted, int64_t accepted, int64_t most);

}  // namespace rullama
