// The variants of attention that ops_attention.cc selects from.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Query heads per workgroup: the most, up to `most`, that share a key/value head.
int64_t GroupOf(int64_t heads_per_kv, int64_t most);
// The maximum number of cached keys that a query may see.
int64_t MostOld(int64_t capacity, int64_t window);

// Appends the current attention op and returns true if it has one query row.
bool AttentionOfOneRow(PlanBuilder& plan);
// The same for many query rows on matrix units, if the device, the shape and the types allow it.
bool AttentionOnMatrixUnits(PlanBuilder& plan);

}  // namespace rullama::gpu
