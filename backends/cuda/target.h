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
inline constexpr std::array<gpu::CoopTile, 4> kCoopTiles = {
    gpu::kLargeCoopTile, gpu::kSmallCoopTile, {32, 64, 16, 32}, {32, 64, 32, 32}};

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options);

}  // namespace rullama::cuda
