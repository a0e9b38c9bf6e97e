// Rows of keys and values to float32; those of block types equal bit for bit to the plain float32
// formula. Included after one of the simd_*.h headers; internal linkage, see there.
#pragma once

#include <rullama/sdk/blocks.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "backends/cpu/kernels/float_matmul.h"

namespace rullama::cpu {
namespace {

// Values of a block of q8_0 or q4_0.
constexpr size_t kCacheBlock = InfoOf(DType::kQ8_0).block_elements;

// The scale of a block, in all lanes.
RL_INLINE F32x16 ScaleOfBlock(const uint8_t* block) {
  uint16_t scale;
  std::memcpy(&scale, block, sizeof(scale));
  return Set1(HalfBitsToFloat(scale));
}

// Values [first, first + 16) of a block of a type with this scale, first = 0 or 16. The codes of
// q4_0 for values 0 to 15 are the low halves of its bytes, those for the others the high ones.
template <typename Block>
RL_INLINE F32x16 LoadSixteen(const uint8_t* block, size_t first, const F32x16& scale) {
  const uint8_t* quants = block + sizeof(uint16_t);
  if constexpr (std::is_same_v<Block, sdk::BlockQ8_0>) {
    return Mul(scale, SignedBytes16(quants + first));
  } else {
    static_assert(std::is_same_v<Block, sdk::BlockQ4_0>);
    return Mul(scale, Sub(Nibbles16(quants, static_cast<int>(first / 4)), Set1(8.0f)));
  }
}

template <typename Block>
void LoadBlocks(const uint8_t* row, size_t n, float* out) {
  for (size_t i = 0; i < n; i += kCacheBlock, row += sizeof(Block)) {
    const F32x16 scale = ScaleOfBlock(row);
    Store(out + i, LoadSixteen<Block>(row, 0, scale));
    Store(out + i + 16, LoadSixteen<Block>(row, 16, scale));
  }
}

RL_INLINE void LoadCacheRow(DType type, const uint8_t* row, size_t n, float* out) {
  switch (type) {
    case DType::kF16:
      return DequantizeFloatRow<DType::kF16>(row, n, out);
    case DType::kBF16:
      return DequantizeFloatRow<DType::kBF16>(row, n, out);
    case DType::kQ8_0:
      return LoadBlocks<sdk::BlockQ8_0>(row, n, out);
    case DType::kQ4_0:
      return LoadBlocks<sdk::BlockQ4_0>(row, n, out);
    default:
      return DequantizeFloatRow<DType::kF32>(row, n, out);
  }
}

}  // namespace
}  // namespace rullama::cpu
