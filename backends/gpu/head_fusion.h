// Norms and rotations of heads that attention of one row computes itself (attention_row.comp), in
// place of a level of small dispatches: of its queries, and of the fresh key and value where it is
// the first to read them. It then writes those for whoever reads them later.
//
// Thread safety: none.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Whether attention_row.comp computes an attention.
bool IsOneRow(const PlanBuilder& plan, const rl_op& attention);
uint32_t OneRowThreads(const Tuning& tuning);

// Whether what the op at hand computes, from `heads`, is left to the attention that reads it.
bool LeaveHeads(PlanBuilder& plan, const Heads& heads);

}  // namespace rullama::gpu
