// The target of graphs that are lowered for a CUDA device.
#pragma once

#include <array>

#include "backends/cuda/instance.h"
#include "backends/gpu/target.h"

namespace rullama::cuda {

// Choices of the options.
struct DriverOptions {
  bool graphs = true;        // steps are replayed as CUDA graphs
  bool tensor_cores = true;  // are used for products of many rows
  bool integer_dot = true;   // products of one row are dot products of bytes
};

// Tiles of products on tensor cores that lowering may ask for.
inline constexpr std::array<gpu::CoopTile, 5> kCoopTiles = {gpu::kLargeCoopTile,
                                                            {128, 128, 64, 32},
                                                            gpu::kSmallCoopTile,
                                                            {32, 64, 16, 32},
                                                            {32, 64, 32, 32}};

// The tiles of products by warpgroups.
inline constexpr std::array kWarpgroupTiles = {gpu::kLargeWarpgroupTile, gpu::kSmallWarpgroupTile};

// Products of one row: threads of a block, and vectors of a row of x that each of them keeps while
// the row is normed. Longer rows have norms of their own.
inline constexpr uint32_t kRowThreads = 512, kMostTurns = 3;

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options);

}  // namespace rullama::cuda
