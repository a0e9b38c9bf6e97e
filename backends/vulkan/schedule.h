// The order of dispatches. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/vulkan/plan_builder.h"

namespace rullama::vulkan {

// For each dispatch the level it runs on: one more than the highest level of the earlier dispatches
// whose memory it shares, other than by both reading it. Dispatches of one level may run side by
// side; between levels there is a barrier.
std::vector<uint32_t> LevelsOf(const std::vector<Dispatch>& dispatches);

}  // namespace rullama::vulkan
