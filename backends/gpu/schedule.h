// The order of dispatches. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu/dispatch.h"

namespace rullama::gpu {

// For each dispatch the level it runs on: one more than the highest level of the earlier dispatches
// whose memory it shares, other than by both reading it. Dispatches of one level may run side by
// side; between levels there is a barrier.
std::vector<uint32_t> LevelsOf(const std::vector<Dispatch>& dispatches);

// The same dispatches with the numbers of a step in place of what depends on them, without those
// that then have no rows.
std::vector<Dispatch> AtExtents(std::vector<Dispatch> dispatches, int64_t t, int64_t r);

// The pipelines of dispatches, each once.
std::vector<PipelineKey> KindsOf(const std::vector<Dispatch>& dispatches);

}  // namespace rullama::gpu
