// Random weights, made directly as blocks of their type: codes are random bits, scales are chosen
// so that the values have a wanted spread. Reproducible: the bytes depend on the seed, the position
// and nothing else. Pure functions; thread-safe.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rullama {

// Types FillRandomBlocks can make.
[[nodiscard]] bool CanSynthesize(DType dtype);

// Fills whole blocks with values of mean about 0 and standard deviation `deviation`. `first_block`
// is the index of the first of them in its tensor, so that pieces may be made in any order.
void FillRandomBlocks(DType dtype, uint64_t seed, uint64_t first_block, float deviation,
                      std::span<std::byte> blocks);

// The seed of a tensor of a model.
[[nodiscard]] uint64_t TensorSeed(uint64_t model_seed, std::string_view name);

}  // namespace rullama
