// Runs the tokens of one slot through a session, in steps of at most as many rows as a step of the
// graph may have. A cancelled feed stops before its next step.
//
// Ownership: borrows the session. Thread safety: one thread; `cancelled` may be set from any
// thread. Blocks until all steps have run. Errors: those of Session::Run; run.cancelled.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/base/status.h"
#include "core/runtime/session.h"

namespace rullama {

struct FeedOptions {
  GraphHandle graph = {};
  int32_t slot = 0;
  const std::atomic<bool>* cancelled = nullptr;  // may be null
};

class SequenceFeeder {
 public:
  // Called after each step with the number of tokens fed so far and in all. Its error ends the
  // feed.
  using OnStep = std::function<Status(int64_t done, int64_t total)>;

  SequenceFeeder(Session& session, FeedOptions options);

  // Appends tokens to the slot. The last step has the demand `last`, the steps before it `demand`.
  Status Feed(std::span<const int32_t> tokens, DemandMode demand, DemandMode last,
              const OnStep& on_step);
  // Appends tokens to the slot, of which there is at least one, and waits for the token that
  // follows the last of them. The graph has the output output_names::kToken.
  Result<int32_t> NextToken(std::span<const int32_t> tokens);
  // Appends tokens to the slot in one step, without a check for cancellation.
  Status RunStep(std::span<const int32_t> tokens, DemandMode demand);

  [[nodiscard]] bool cancelled() const {
    return options_.cancelled != nullptr && options_.cancelled->load();
  }
  [[nodiscard]] int32_t position() const { return session_.past(options_.slot); }

 private:
  Session& session_;
  FeedOptions options_;
  StepRows rows_;  // of the last step; kept for its memory
};

}  // namespace rullama
