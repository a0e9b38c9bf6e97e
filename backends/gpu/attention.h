// The forms of attention, for ops_attention.cc.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Query heads of a workgroup: as many of those that share a key/value head as fit.
int64_t GroupOf(int64_t heads_per_kv, int64_t most);
// Old keys a query may see.
int64_t MostOld(int64_t capacity, int64_t window);

// Appends the attention at hand if it is of one row.
bool AttentionOfOneRow(PlanBuilder& plan);
// The same of many rows on matrix units, if the device, its shape and its types allow it.
bool AttentionOnMatrixUnits(PlanBuilder& plan);

}  // namespace rullama::gpu
