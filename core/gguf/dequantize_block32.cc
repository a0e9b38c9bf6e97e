// Blocks of 32 values: one scale (and minimum), then packed integers. Value j lies in the low
// nibble of byte j, value j + 16 in its high nibble. NVFP4 has four such sub-blocks of 16.
#include <rullama/sdk/half.h>

#include <bit>
#include <cstring>

#include "core/gguf/block_layouts.h"
#include "core/gguf/dequantize_kernels.h"

namespace rullama::gguf_internal {
namespace {

constexpr int kHalfBlock = 16;

// The E2M1 values times two, so that they are integers.
constexpr int8_t kFp4TimesTwo[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Calls decode(block, out) for each block, copied out of the unaligned file.
template <typename Block, int kElements, typename Decode>
void ForEachBlock(const std::byte* blocks, size_t count, float* out, Decode decode) {
  for (size_t i = 0; i < count; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * sizeof(Block), sizeof(Block));
    decode(block, out + i * kElements);
  }
}

uint32_t FifthBits(const uint8_t (&qh)[4]) {
  uint32_t bits;
  std::memcpy(&bits, qh, sizeof(bits));
  return bits;
}

// 2^(e - 128): half the E8M0 scale, which undoes the doubling of kFp4TimesTwo. Exponents 0 and 1
// give subnormal floats.
float HalfE8M0(uint8_t e) {
  constexpr uint32_t kTwoToMinus128 = 0x00200000;
  const uint32_t bits = e < 2 ? kTwoToMinus128 << e : (uint32_t{e} - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Unsigned E4M3 with bias 7; 0x00 and 0x7F (NaN in the format) scale to 0.
float UnsignedE4M3(uint8_t code) {
  if (code == 0 || code == 0x7F) return 0.0f;
  const int exponent = code >> 3;
  const auto mantissa = static_cast<float>(code & 7);
  if (exponent == 0) return mantissa * 0x1p-9f;
  const auto scale = std::bit_cast<float>(static_cast<uint32_t>(exponent - 7 + 127) << 23);
  return (1.0f + mantissa * 0.125f) * scale;
}

}  // namespace

void DequantizeQ4_0(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ4_0, 32>(blocks, count, out, [](const BlockQ4_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int j = 0; j < kHalfBlock; ++j) {
      y[j] = static_cast<float>((block.qs[j] & 15) - 8) * d;
      y[j + kHalfBlock] = static_cast<float>((block.qs[j] >> 4) - 8) * d;
    }
  });
}

void DequantizeQ4_1(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ4_1, 32>(blocks, count, out, [](const BlockQ4_1& block, float* y) {
    const float d = HalfToFloat(block.d);
    const float m = HalfToFloat(block.m);
    for (int j = 0; j < kHalfBlock; ++j) {
      y[j] = static_cast<float>(block.qs[j] & 15) * d + m;
      y[j + kHalfBlock] = static_cast<float>(block.qs[j] >> 4) * d + m;
    }
  });
}

void DequantizeQ5_0(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ5_0, 32>(blocks, count, out, [](const BlockQ5_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    const uint32_t high = FifthBits(block.qh);
    for (int j = 0; j < kHalfBlock; ++j) {
      const int low_bit = static_cast<int>(high >> j & 1u) << 4;
      const int high_bit = static_cast<int>(high >> (j + kHalfBlock) & 1u) << 4;
      y[j] = static_cast<float>(((block.qs[j] & 15) | low_bit) - 16) * d;
      y[j + kHalfBlock] = static_cast<float>(((block.qs[j] >> 4) | high_bit) - 16) * d;
    }
  });
}

void DequantizeQ5_1(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ5_1, 32>(blocks, count, out, [](const BlockQ5_1& block, float* y) {
    const float d = HalfToFloat(block.d);
    const float m = HalfToFloat(block.m);
    const uint32_t high = FifthBits(block.qh);
    for (int j = 0; j < kHalfBlock; ++j) {
      const int low_bit = static_cast<int>(high >> j & 1u) << 4;
      const int high_bit = static_cast<int>(high >> (j + kHalfBlock) & 1u) << 4;
      y[j] = static_cast<float>((block.qs[j] & 15) | low_bit) * d + m;
      y[j + kHalfBlock] = static_cast<float>((block.qs[j] >> 4) | high_bit) * d + m;
    }
  });
}

void DequantizeQ8_0(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ8_0, 32>(blocks, count, out, [](const BlockQ8_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(block.qs[j]) * d;
  });
}

void DequantizeIq4Nl(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ4_0, 32>(blocks, count, out, [](const BlockQ4_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int j = 0; j < kHalfBlock; ++j) {
      y[j] = d * static_cast<float>(kIq4Values[block.qs[j] & 15]);
      y[j + kHalfBlock] = d * static_cast<float>(kIq4Values[block.qs[j] >> 4]);
    }
  });
}

void DequantizeMxfp4(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockMxfp4, 32>(blocks, count, out, [](const BlockMxfp4& block, float* y) {
    const float d = HalfE8M0(block.e);
    for (int j = 0; j < kHalfBlock; ++j) {
      y[j] = static_cast<float>(kFp4TimesTwo[block.qs[j] & 15]) * d;
      y[j + kHalfBlock] = static_cast<float>(kFp4TimesTwo[block.qs[j] >> 4]) * d;
    }
  });
}

void DequantizeNvfp4(const std::byte* blocks, size_t count, float* out) {
  constexpr int kSubBlock = 16;
  constexpr int kSubBytes = kSubBlock / 2;
  ForEachBlock<BlockNvfp4, 64>(blocks, count, out, [](const BlockNvfp4& block, float* y) {
    for (int s = 0; s < 4; ++s) {
      const float d = UnsignedE4M3(block.d[s]) * 0.5f;
      for (int j = 0; j < kSubBytes; ++j) {
        const uint8_t q = block.qs[s * kSubBytes + j];
        y[s * kSubBlock + j] = static_cast<float>(kFp4TimesTwo[q & 15]) * d;
        y[s * kSubBlock + j + kSubBytes] = static_cast<float>(kFp4TimesTwo[q >> 4]) * d;
      }
    }
  });
}

}  // namespace rullama::gguf_internal
