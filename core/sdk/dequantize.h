// Weights to float32: every type of dtypes.def that rullama decodes. These functions define what a
// block means. Each formula rounds in the order of ggml's reference code and is bit-exact against
// it. Where a sum follows a product, the product is exact (11 bits of an f16, at most 6 of a scale
// and 5 of a code), so a compiler that fuses both changes nothing; -ffast-math may.
//
//   const sdk::Dequantizer decode = sdk::FindDequantizer(weight.dtype);   // null: not decoded
//   decode(row, k / rullama::FindDType(weight.dtype)->block_elements, out);   // k floats
//
// Thread safety: pure functions.
#pragma once

#include <rullama/sdk/blocks.h>
#include <rullama/sdk/dequantize_codebook.h>
#include <rullama/sdk/dtype.h>
#include <rullama/sdk/half.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rullama::sdk {

// Decodes `count` consecutive blocks, which need no alignment, into count * (elements per block)
// floats. A block of a plain type is one value.
using Dequantizer = void (*)(const std::byte* blocks, size_t count, float* out);

// The sixteen values of iq4_nl and iq4_xs, denser around zero where weights are.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// The sixteen values of e2m1 (mxfp4, nvfp4) times two, so that they are integers.
inline constexpr int8_t kE2M1TimesTwo[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

namespace internal {

inline constexpr int kHalfBlock = 16;
inline constexpr int kSuperBlock = 256;

template <typename T>
T LoadAs(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Calls decode(block, out) for each block.
template <typename Block, int kElements, typename Decode>
void ForEachBlock(const std::byte* blocks, size_t count, float* out, Decode decode) {
  for (size_t i = 0; i < count; ++i) {
    decode(LoadAs<Block>(blocks + i * sizeof(Block)), out + i * size_t{kElements});
  }
}

inline uint32_t FifthBits(const uint8_t (&qh)[4]) {
  uint32_t bits;
  std::memcpy(&bits, qh, sizeof(bits));
  return bits;
}

// 2^(e - 128): half the E8M0 scale, which undoes the doubling of kE2M1TimesTwo. Exponents 0 and 1
// give subnormal floats.
inline float HalfE8M0(uint8_t e) {
  constexpr uint32_t kTwoToMinus128 = 0x00200000;
  const uint32_t bits = e < 2 ? kTwoToMinus128 << e : (uint32_t{e} - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Unsigned E4M3 with bias 7; 0x00 and 0x7F (NaN in the format) scale to 0.
inline float UnsignedE4M3(uint8_t code) {
  if (code == 0 || code == 0x7F) return 0.0f;
  const int exponent = code >> 3;
  const auto mantissa = static_cast<float>(code & 7);
  if (exponent == 0) return mantissa * 0x1p-9f;
  const auto scale = std::bit_cast<float>(static_cast<uint32_t>(exponent - 7 + 127) << 23);
  return (1.0f + mantissa * 0.125f) * scale;
}

struct ScaleMin {
  float scale;
  float min;
};

// Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minima into twelve bytes: sub-blocks 0-3
// lie in the low six bits of bytes 0-7; of sub-blocks 4-7, the low nibbles lie in bytes 8-11 and
// the two high bits in the top of bytes 0-7.
inline ScaleMin SubBlockScale(const uint8_t (&s)[12], int j, float d, float dmin) {
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
  const int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
  return {d * static_cast<float>(scale), dmin * static_cast<float>(min)};
}

// The signed 6-bit scale of group `g` (0-15) of Q3_K.
inline int Q3Scale(const uint8_t (&s)[12], int g) {
  const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
  const int high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
  return (low | high << 4) - 32;
}

}  // namespace internal

// ---- plain types

// Rounds to the nearest float.
template <typename T>
void DequantizePlain(const std::byte* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(internal::LoadAs<T>(blocks + i * sizeof(T)));
  }
}

// HalfToFloat without branches, so that compilers vectorise it, and without subnormal floats in
// between, which are slow: a subnormal half m * 2^-24 is (1 + m / 1024) * 2^-14 - 2^-14, exactly.
inline void DequantizeF16(const std::byte* blocks, size_t count, float* out) {
  constexpr uint32_t kHalfExponent = 0x7C00;
  constexpr uint32_t kFloatExponent = 0x7F800000;
  constexpr uint32_t kRebias = (127 - 15) << 23;
  constexpr uint32_t kTwoToMinus14 = (127 - 14) << 23;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t half = internal::LoadAs<uint16_t>(blocks + i * sizeof(uint16_t));
    const uint32_t shifted = (half & 0x7FFFu) << 13;
    const auto subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + kTwoToMinus14) -
                                                   std::bit_cast<float>(kTwoToMinus14));
    uint32_t magnitude = shifted + kRebias;
    magnitude = (half & kHalfExponent) == 0 ? subnormal : magnitude;
    magnitude = (half & kHalfExponent) == kHalfExponent ? shifted | kFloatExponent : magnitude;
    out[i] = std::bit_cast<float>(magnitude | (half & 0x8000u) << 16);
  }
}

inline void DequantizeBF16(const std::byte* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = BFloat16ToFloat(internal::LoadAs<uint16_t>(blocks + i * sizeof(uint16_t)));
  }
}

// ---- blocks of 32 and 64: one scale (and minimum), then packed integers

inline void DequantizeQ4_0(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ4_0, 32>(blocks, count, out, [](const BlockQ4_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int j = 0; j < internal::kHalfBlock; ++j) {
      y[j] = static_cast<float>((block.qs[j] & 15) - 8) * d;
      y[j + internal::kHalfBlock] = static_cast<float>((block.qs[j] >> 4) - 8) * d;
    }
  });
}

inline void DequantizeQ4_1(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ4_1, 32>(blocks, count, out, [](const BlockQ4_1& block, float* y) {
    const float d = HalfToFloat(block.d);
    const float m = HalfToFloat(block.m);
    for (int j = 0; j < internal::kHalfBlock; ++j) {
      y[j] = static_cast<float>(block.qs[j] & 15) * d + m;
      y[j + internal::kHalfBlock] = static_cast<float>(block.qs[j] >> 4) * d + m;
    }
  });
}

inline void DequantizeQ5_0(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ5_0, 32>(blocks, count, out, [](const BlockQ5_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    const uint32_t high = internal::FifthBits(block.qh);
    for (int j = 0; j < internal::kHalfBlock; ++j) {
      const int low_bit = static_cast<int>(high >> j & 1u) << 4;
      const int high_bit = static_cast<int>(high >> (j + internal::kHalfBlock) & 1u) << 4;
      y[j] = static_cast<float>(((block.qs[j] & 15) | low_bit) - 16) * d;
      y[j + internal::kHalfBlock] = static_cast<float>(((block.qs[j] >> 4) | high_bit) - 16) * d;
    }
  });
}

inline void DequantizeQ5_1(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ5_1, 32>(blocks, count, out, [](const BlockQ5_1& block, float* y) {
    const float d = HalfToFloat(block.d);
    const float m = HalfToFloat(block.m);
    const uint32_t high = internal::FifthBits(block.qh);
    for (int j = 0; j < internal::kHalfBlock; ++j) {
      const int low_bit = static_cast<int>(high >> j & 1u) << 4;
      const int high_bit = static_cast<int>(high >> (j + internal::kHalfBlock) & 1u) << 4;
      y[j] = static_cast<float>((block.qs[j] & 15) | low_bit) * d + m;
      y[j + internal::kHalfBlock] = static_cast<float>((block.qs[j] >> 4) | high_bit) * d + m;
    }
  });
}

inline void DequantizeQ8_0(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ8_0, 32>(blocks, count, out, [](const BlockQ8_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(block.qs[j]) * d;
  });
}

inline void DequantizeIq4Nl(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ4_0, 32>(blocks, count, out, [](const BlockQ4_0& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int j = 0; j < internal::kHalfBlock; ++j) {
      y[j] = d * static_cast<float>(kIq4Values[block.qs[j] & 15]);
      y[j + internal::kHalfBlock] = d * static_cast<float>(kIq4Values[block.qs[j] >> 4]);
    }
  });
}

inline void DequantizeMxfp4(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockMxfp4, 32>(blocks, count, out, [](const BlockMxfp4& block, float* y) {
    const float d = internal::HalfE8M0(block.e);
    for (int j = 0; j < internal::kHalfBlock; ++j) {
      y[j] = static_cast<float>(kE2M1TimesTwo[block.qs[j] & 15]) * d;
      y[j + internal::kHalfBlock] = static_cast<float>(kE2M1TimesTwo[block.qs[j] >> 4]) * d;
    }
  });
}

inline void DequantizeNvfp4(const std::byte* blocks, size_t count, float* out) {
  constexpr int kSubBlock = 16;
  constexpr int kSubBytes = kSubBlock / 2;
  internal::ForEachBlock<BlockNvfp4, 64>(blocks, count, out, [](const BlockNvfp4& block, float* y) {
    for (int s = 0; s < 4; ++s) {
      const float d = internal::UnsignedE4M3(block.d[s]) * 0.5f;
      for (int j = 0; j < kSubBytes; ++j) {
        const uint8_t q = block.qs[s * kSubBytes + j];
        y[s * kSubBlock + j] = static_cast<float>(kE2M1TimesTwo[q & 15]) * d;
        y[s * kSubBlock + j + kSubBytes] = static_cast<float>(kE2M1TimesTwo[q >> 4]) * d;
      }
    }
  });
}

// ---- super-blocks of 256: scales of sub-blocks are themselves quantised against one or two f16

inline void DequantizeQ2K(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ2K, internal::kSuperBlock>(
      blocks, count, out, [](const BlockQ2K& block, float* y) {
        const float d = HalfToFloat(block.d);
        const float dmin = HalfToFloat(block.dmin);
        for (int g = 0; g < 16; ++g) {
          // Half of the super-block, then two-bit plane, then which 16 of its 32 bytes.
          const uint8_t* q = block.qs + g / 8 * 32 + g % 2 * 16;
          const int shift = g % 8 / 2 * 2;
          const float scale = d * static_cast<float>(block.scales[g] & 15);
          const float min = dmin * static_cast<float>(block.scales[g] >> 4);
          for (int l = 0; l < 16; ++l) {
            y[g * 16 + l] = scale * static_cast<float>(q[l] >> shift & 3) - min;
          }
        }
      });
}

inline void DequantizeQ3K(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ3K, internal::kSuperBlock>(
      blocks, count, out, [](const BlockQ3K& block, float* y) {
        const float d = HalfToFloat(block.d);
        for (int g = 0; g < 16; ++g) {
          const uint8_t* q = block.qs + g / 8 * 32 + g % 2 * 16;
          const uint8_t* mask = block.hmask + g % 2 * 16;
          const int shift = g % 8 / 2 * 2;
          const int plane = g / 2;  // the bit of hmask
          const float scale = d * static_cast<float>(internal::Q3Scale(block.scales, g));
          for (int l = 0; l < 16; ++l) {
            const int high = (mask[l] >> plane & 1) << 2;
            y[g * 16 + l] = scale * static_cast<float>(((q[l] >> shift & 3) | high) - 4);
          }
        }
      });
}

inline void DequantizeQ4K(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ4K, internal::kSuperBlock>(
      blocks, count, out, [](const BlockQ4K& block, float* y) {
        const float d = HalfToFloat(block.d);
        const float dmin = HalfToFloat(block.dmin);
        for (int j = 0; j < 8; j += 2) {
          const uint8_t* q = block.qs + j * 16;
          const internal::ScaleMin low = internal::SubBlockScale(block.scales, j, d, dmin);
          const internal::ScaleMin high = internal::SubBlockScale(block.scales, j + 1, d, dmin);
          for (int l = 0; l < 32; ++l) {
            y[j * 32 + l] = low.scale * static_cast<float>(q[l] & 15) - low.min;
          }
          for (int l = 0; l < 32; ++l) {
            y[j * 32 + 32 + l] = high.scale * static_cast<float>(q[l] >> 4) - high.min;
          }
        }
      });
}

inline void DequantizeQ5K(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ5K, internal::kSuperBlock>(
      blocks, count, out, [](const BlockQ5K& block, float* y) {
        const float d = HalfToFloat(block.d);
        const float dmin = HalfToFloat(block.dmin);
        for (int j = 0; j < 8; j += 2) {
          const uint8_t* q = block.qs + j * 16;
          const internal::ScaleMin low = internal::SubBlockScale(block.scales, j, d, dmin);
          const internal::ScaleMin high = internal::SubBlockScale(block.scales, j + 1, d, dmin);
          for (int l = 0; l < 32; ++l) {
            const int fifth = (block.qh[l] >> j & 1) << 4;
            y[j * 32 + l] = low.scale * static_cast<float>((q[l] & 15) | fifth) - low.min;
          }
          for (int l = 0; l < 32; ++l) {
            const int fifth = (block.qh[l] >> (j + 1) & 1) << 4;
            y[j * 32 + 32 + l] = high.scale * static_cast<float>((q[l] >> 4) | fifth) - high.min;
          }
        }
      });
}

inline void DequantizeQ6K(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockQ6K, internal::kSuperBlock>(
      blocks, count, out, [](const BlockQ6K& block, float* y) {
        const float d = HalfToFloat(block.d);
        for (int g = 0; g < 16; ++g) {
          // Groups of 16 values; eight groups per half, two per quarter of 32.
          const int half = g / 8;
          const int quarter = g % 8 / 2;
          const int first = g % 2 * 16;
          const uint8_t* ql = block.ql + half * 64 + quarter % 2 * 32 + first;
          const uint8_t* qh = block.qh + half * 32 + first;
          const int low_shift = quarter / 2 * 4;
          const int high_shift = quarter * 2;
          const float scale = d * static_cast<float>(block.scales[g]);
          for (int l = 0; l < 16; ++l) {
            const int q = (ql[l] >> low_shift & 15) | (qh[l] >> high_shift & 3) << 4;
            y[g * 16 + l] = scale * static_cast<float>(q - 32);
          }
        }
      });
}

inline void DequantizeIq4Xs(const std::byte* blocks, size_t count, float* out) {
  internal::ForEachBlock<BlockIq4Xs, internal::kSuperBlock>(
      blocks, count, out, [](const BlockIq4Xs& block, float* y) {
        const float d = HalfToFloat(block.d);
        for (int j = 0; j < 8; ++j) {
          const int low = block.scales_l[j / 2] >> (4 * (j % 2)) & 15;
          const int high = (block.scales_h >> (2 * j) & 3) << 4;
          const float scale = d * static_cast<float>((low | high) - 32);
          const uint8_t* q = block.qs + j * 16;
          for (int l = 0; l < 16; ++l) {
            y[j * 32 + l] = scale * static_cast<float>(kIq4Values[q[l] & 15]);
            y[j * 32 + 16 + l] = scale * static_cast<float>(kIq4Values[q[l] >> 4]);
          }
        }
      });
}

// ---- by type

// Null for a type that is not decoded: then it is known by name and size only.
[[nodiscard]] constexpr Dequantizer FindDequantizer(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return DequantizePlain<float>;
    case DType::kF16:
      return DequantizeF16;
    case DType::kBF16:
      return DequantizeBF16;
    case DType::kF64:
      return DequantizePlain<double>;
    case DType::kI8:
      return DequantizePlain<int8_t>;
    case DType::kI16:
      return DequantizePlain<int16_t>;
    case DType::kI32:
      return DequantizePlain<int32_t>;
    case DType::kI64:
      return DequantizePlain<int64_t>;
    case DType::kQ4_0:
      return DequantizeQ4_0;
    case DType::kQ4_1:
      return DequantizeQ4_1;
    case DType::kQ5_0:
      return DequantizeQ5_0;
    case DType::kQ5_1:
      return DequantizeQ5_1;
    case DType::kQ8_0:
      return DequantizeQ8_0;
    case DType::kQ2_K:
      return DequantizeQ2K;
    case DType::kQ3_K:
      return DequantizeQ3K;
    case DType::kQ4_K:
      return DequantizeQ4K;
    case DType::kQ5_K:
      return DequantizeQ5K;
    case DType::kQ6_K:
      return DequantizeQ6K;
    case DType::kIQ4_NL:
      return DequantizeIq4Nl;
    case DType::kIQ4_XS:
      return DequantizeIq4Xs;
    case DType::kIQ2_XXS:
      return DequantizeWithLevels<DType::kIQ2_XXS, kIq2Levels>;
    case DType::kIQ2_XS:
      return DequantizeWithLevels<DType::kIQ2_XS, kIq2Levels>;
    case DType::kIQ2_S:
      return DequantizeWithLevels<DType::kIQ2_S, kIq2Levels>;
    case DType::kIQ3_XXS:
      return DequantizeWithLevels<DType::kIQ3_XXS, kIq3XxsLevels>;
    case DType::kIQ3_S:
      return DequantizeWithLevels<DType::kIQ3_S, kIq3SLevels>;
    case DType::kIQ1_S:
      return DequantizeWithLevels<DType::kIQ1_S, kIq1Levels>;
    case DType::kIQ1_M:
      return DequantizeWithLevels<DType::kIQ1_M, kIq1Levels>;
    case DType::kTQ1_0:
      return DequantizeWithLevels<DType::kTQ1_0, kTernaryLevels>;
    case DType::kTQ2_0:
      return DequantizeWithLevels<DType::kTQ2_0, kTernaryLevels>;
    case DType::kMXFP4:
      return DequantizeMxfp4;
    case DType::kNVFP4:
      return DequantizeNvfp4;
    default:
      return nullptr;
  }
}

// The same for the number of a type, as in rl_value and rl_weight_desc; null for a number without a
// type, too.
[[nodiscard]] constexpr Dequantizer FindDequantizer(uint32_t dtype) {
  const DTypeInfo* info = FindDType(dtype);
  return info == nullptr ? nullptr : FindDequantizer(info->dtype);
}

}  // namespace rullama::sdk
