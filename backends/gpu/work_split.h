// Who computes how much of what runs side by side.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Divides the products of each level (schedule.h) among the workgroups that keep the device busy,
// less those that the level's other dispatches have: each product gets as many of them as its part
// of the level's weights. So no workgroup has a second task while others wait for it.
void Balance(std::vector<Dispatch>& dispatches, std::span<const uint32_t> levels,
             const Tuning& tuning);

}  // namespace rullama::gpu
