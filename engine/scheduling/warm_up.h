// Compiles what steps can need before there are requests (backend.warm_up), so that none of them
// waits for a compiler.
//
// Thread safety: for the thread that uses the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/passes/row_demand.h"
#include "core/runtime/session.h"
#include "engine/host_hooks.h"
#include "engine/model_program.h"

namespace rullama {

// The largest step of a plan, as Session::Prepare() takes it.
struct ExpectedStep {
  GraphHandle graph;
  int64_t rows = 1;
  DemandMode demand = DemandMode::kPerOutput;
  int64_t wanted = 1;
};

// The steps that answers can lead to, the likeliest first: all sizes of those that read prompts and
// of those that draw by `usual`, the chain of the configuration's sampler, and the least and the
// largest that draw by each other chain, which have the kernels of the sizes in between. `judges`:
// drafts end before unlikely tokens. `own`: the adapters of requests that choose none, null: none.
// `graphs`: of the program of the session.
[[nodiscard]] std::vector<ExpectedStep> StepsOfAnswers(const Session& session,
                                                       const ProgramGraphs& graphs,
                                                       const RowChainOptions& usual, bool judges,
                                                       const AdaptersInForce* own);
// The steps of all other requests.
[[nodiscard]] std::vector<ExpectedStep> OtherSteps(const Session& session,
                                                   const ProgramGraphs& graphs);

// Compiles the plans of these steps; those that the devices refuse are left out. Errors: those of
// Session::Prepare(); run.cancelled once `cancelled` (may be null) is set.
Status WarmUpSteps(Session& session, std::span<const ExpectedStep> steps,
                   const std::atomic<bool>* cancelled);

// Handles the result of a warm-up of steps that not every request needs. Returns run.cancelled, and
// errors that text requests would meet too (device.lost). Others become a warning in `notices`:
// requests for `what` try again, and fail with such an error as long as its cause is there.
Status WarnUnlessFatal(Status warmed_up, std::string_view what, Notices& notices);

// Waits for what the devices compile while steps run. Errors: as WarmUpSteps().
Status WaitForPending(Session& session, const std::atomic<bool>* cancelled);

}  // namespace rullama
