// Orders dispatches into levels. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu/dispatch.h"

namespace rullama::gpu {

// Returns the level of each dispatch: one more than the highest level of the earlier dispatches it
// depends on. Two dispatches depend on each other if they touch the same memory and at least one
// writes it. Dispatches of one level may run concurrently; levels are separated by barriers.
std::vector<uint32_t> LevelsOf(const std::vector<Dispatch>& dispatches);

// Returns the order in which dispatches are recorded, as their indices: by level, and within a
// level those on matrix units first, which otherwise may take twice as long (docs/lab/README.md).
// Presumably few of their workgroups fit while those of another dispatch determine how a
// multiprocessor divides its memory.
std::vector<uint32_t> OrderOf(const std::vector<Dispatch>& dispatches,
                              const std::vector<uint32_t>& levels);

// Returns the dispatches with the extents of a step filled in, without those that then have no
// rows.
std::vector<Dispatch> AtExtents(std::vector<Dispatch> dispatches, int64_t t, int64_t r);

// Returns the distinct pipelines of the dispatches.
std::vector<PipelineKey> KindsOf(const std::vector<Dispatch>& dispatches);

}  // namespace rullama::gpu
