// Splits the workgroups of a level among its matrix products.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Sets the workgroup count of each product of a level (schedule.h). The workgroups that keep the
// device busy, minus those of the level's other dispatches, are split in proportion to the weight
// bytes of the products. No workgroup then runs a second task while others wait at the barrier.
// With `row_by_row` the other dispatches do not count: their workgroups grow with the rows of the
// plan, and the order in which a product adds depends on its share.
void Balance(std::vector<Dispatch>& dispatches, std::span<const uint32_t> levels,
             const Target& target, bool row_by_row);

}  // namespace rullama::gpu
