// Rows of keys and values in blocks of 32: how `cast` rounds f32 to q8_0 and q4_0. The bytes are
// those of ggml's quantize_row_q8_0_ref and quantize_row_q4_0_ref; dequantize.h is the way back.
// A value that is not finite makes every value of its block NaN, so that it is not lost.
// Thread safety: pure functions. Compile without contraction to fused multiply-add.
#pragma once

#include <rullama/sdk/blocks.h>
#include <rullama/sdk/dtype.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rullama::sdk {

// Whether keys and values may have this type, and whether it is one of blocks.
[[nodiscard]] constexpr bool IsBlockCacheType(DType dtype) {
  return dtype == DType::kQ8_0 || dtype == DType::kQ4_0;
}
[[nodiscard]] constexpr bool IsCacheType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         IsBlockCacheType(dtype);
}

// Values of a block of these types.
inline constexpr size_t kCacheBlock = InfoOf(DType::kQ8_0).block_elements;
static_assert(kCacheBlock == InfoOf(DType::kQ4_0).block_elements);

namespace internal {

// The value of a block that is farthest from 0, the first of several; NaN unless all are finite.
inline float FarthestFromZero(const float* x) {
  float farthest = 0;
  for (size_t i = 0; i < kCacheBlock; ++i) {
    if (!std::isfinite(x[i])) return std::nanf("");
    if (std::fabs(x[i]) > std::fabs(farthest)) farthest = x[i];
  }
  return farthest;
}

// 1 / scale, or 0 where the scale is so small that its f16 is 0 in any case.
inline float InverseOf(float scale) {
  const float inverse = 1.0f / scale;
  return scale != 0 && std::isfinite(inverse) ? inverse : 0.0f;
}

}  // namespace internal

inline void QuantizeBlock(const float* x, BlockQ8_0& block) {
  const float scale = std::fabs(internal::FarthestFromZero(x)) / 127.0f;
  block.d = FloatToHalf(scale);
  const float inverse = internal::InverseOf(scale);
  for (size_t i = 0; i < kCacheBlock; ++i) {
    block.qs[i] = std::isnan(scale) ? int8_t{0} : static_cast<int8_t>(std::round(x[i] * inverse));
  }
}

inline void QuantizeBlock(const float* x, BlockQ4_0& block) {
  constexpr size_t kHalf = kCacheBlock / 2;
  const float scale = internal::FarthestFromZero(x) / -8.0f;
  block.d = FloatToHalf(scale);
  const float inverse = internal::InverseOf(scale);
  const auto code = [&](float value) {
    if (std::isnan(scale)) return 0;
    return std::min(15, static_cast<int>(value * inverse + 8.5f));
  };
  for (size_t i = 0; i < kHalf; ++i) {
    block.qs[i] = static_cast<uint8_t>(code(x[i]) | code(x[kHalf + i]) << 4);
  }
}

// Encodes whole blocks of a type with IsBlockCacheType(); `blocks` needs no alignment.
inline void QuantizeCacheRow(DType dtype, const float* x, size_t elements, std::byte* blocks) {
  const auto encode = [&](auto block) {
    for (size_t i = 0; i < elements; i += kCacheBlock, blocks += sizeof(block)) {
      QuantizeBlock(x + i, block);
      std::memcpy(blocks, &block, sizeof(block));
    }
  };
  if (dtype == DType::kQ8_0) encode(BlockQ8_0{});
  if (dtype == DType::kQ4_0) encode(BlockQ4_0{});
}

}  // namespace rullama::sdk
