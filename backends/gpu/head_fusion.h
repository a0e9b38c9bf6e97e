// Fuses head norms and rotations into attention with one query row (attention_row.comp), which
// saves a level of small dispatches. The kernel transforms its queries. If it is the first reader
// of the new key and value, it transforms those too and stores them for later readers.
//
// Thread safety: none.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Whether attention_row.comp computes this attention op.
bool IsOneRow(const PlanBuilder& plan, const rl_op& attention);
uint32_t OneRowThreads(const Tuning& tuning);

// Defers the current op, described by `heads`, to the attention that reads its result. Returns
// false if that is not possible.
bool LeaveHeads(PlanBuilder& plan, const Heads& heads);

}  // namespace rullama::gpu
