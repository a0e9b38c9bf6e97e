// The least traffic and work of a step, counted from the ops that run. Measured times are compared
// with it. Pure functions.
#pragma once

#include <cstdint>

#include "core/passes/pipeline.h"

namespace rullama::cli {

struct Traffic {
  uint64_t weight_bytes = 0;  // constants, once for each op that reads them; gathered rows only
  uint64_t cache_bytes = 0;   // K and V rows of earlier steps
  double flops = 0;           // of products and attention, a multiplication and an addition each

  Traffic& operator+=(const Traffic& other);
};

// The traffic of one step at these extents, with `past` rows in the cache of its only slot.
Traffic TrafficOfStep(const Program& program, const Extents& extents, int64_t past);

}  // namespace rullama::cli
