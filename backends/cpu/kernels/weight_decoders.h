// Decoders of the GGUF block types, used by all products and conversions. Over a chunk of 256
// elements a weight is
//
//   w[i] = scale[i / 16] * quant[i] + offset[i / 16]
//
// with byte quants in file order. Types with 32 elements per block have eight blocks per chunk.
//
// Decoder<T> has the constants of BlockType<T>, and
//   Scales(chunk)    kGroup = 16: sixteen scales and sixteen offsets
//   Pairs(chunk)     kGroup = 32: eight scales in even lanes, their offsets in odd lanes
//   Quants<i>(chunk) quants of elements [64 * i, 64 * i + 64)
//
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/block_types.h"

namespace rullama::cpu {
namespace {

struct ScalePair {
  F32x16 scale;
  F32x16 offset;
};

template <DType T>
struct Decoder;

RL_INLINE uint32_t LoadU32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}
RL_INLINE uint64_t LoadU64(const uint8_t* p) {
  uint64_t value;
  std::memcpy(&value, p, 8);
  return value;
}
RL_INLINE float LoadHalfScalar(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return HalfBitsToFloat(half);
}

RL_INLINE ScalePair Symmetric(const F32x16& scale, float zero) {
  return {scale, Mul(scale, Set1(-zero))};
}
// The Pairs() of a symmetric type, from scales that are repeated in two lanes each.
RL_INLINE F32x16 SymmetricPairs(const F32x16& scale, float zero) {
  const float factors[16] = {1, -zero, 1, -zero, 1, -zero, 1, -zero,
                             1, -zero, 1, -zero, 1, -zero, 1, -zero};
  return Mul(scale, Load(factors));
}

template <DType T>
RL_INLINE ScalePair ScalesOf(const uint8_t* chunk) {
  if constexpr (Decoder<T>::kGroup == 32) {
    const F32x16 pairs = Decoder<T>::Pairs(chunk);
    return {RepeatEven(pairs), RepeatOdd(pairs)};
  } else {
    return Decoder<T>::Scales(chunk);
  }
}

// --- 32 elements per block -----------------------------------------------------------------------
template <>
struct Decoder<DType::kQ8_0> : BlockType<DType::kQ8_0> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    return SymmetricPairs(HalfPairs<kBlockBytes>(p), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 * kQuarter * kBlockBytes + 2;
    return XorByte(LoadBytes32x2(q, q + kBlockBytes), static_cast<uint8_t>(kWideBias));
  }
};

template <>
struct Decoder<DType::kQ4_0> : BlockType<DType::kQ4_0> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    return SymmetricPairs(HalfPairs<kBlockBytes>(p), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 * kQuarter * kBlockBytes + 2;
    return Nibbles16x2(q, q + kBlockBytes);
  }
};

template <>
struct Decoder<DType::kQ4_1> : BlockType<DType::kQ4_1> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) { return HalfTwos<kBlockBytes>(p); }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 * kQuarter * kBlockBytes + 4;
    return Nibbles16x2(q, q + kBlockBytes);
  }
};

// Q5_0 and Q5_1: `high_bits` is the field qh, a little-endian word whose bit i is bit 4 of quant i.
// It is followed by the nibbles qs.
template <size_t kBlockBytes>
RL_INLINE U8x64 FiveBitQuants(const uint8_t* high_bits) {
  const uint8_t* nibbles = high_bits + 4;
  const uint64_t bits = LoadU32(high_bits) | static_cast<uint64_t>(LoadU32(high_bits + kBlockBytes))
                                                 << 32;
  return OrWhereBit<16>(Nibbles16x2(nibbles, nibbles + kBlockBytes), bits);
}

template <>
struct Decoder<DType::kQ5_0> : BlockType<DType::kQ5_0> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    return SymmetricPairs(HalfPairs<kBlockBytes>(p), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    return FiveBitQuants<kBlockBytes>(p + 2 * kQuarter * kBlockBytes + 2);
  }
};

template <>
struct Decoder<DType::kQ5_1> : BlockType<DType::kQ5_1> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) { return HalfTwos<kBlockBytes>(p); }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    return FiveBitQuants<kBlockBytes>(p + 2 * kQuarter * kBlockBytes + 4);
  }
};

constexpr uint8_t BiasedByte(int value, int bias) { return static_cast<uint8_t>(value + bias); }

// The non-linear 4-bit code book of IQ4_NL and IQ4_XS.
alignas(16) constexpr uint8_t kIq4Table[16] = {
    BiasedByte(-127, kWideBias), BiasedByte(-104, kWideBias), BiasedByte(-83, kWideBias),
    BiasedByte(-65, kWideBias),  BiasedByte(-49, kWideBias),  BiasedByte(-35, kWideBias),
    BiasedByte(-22, kWideBias),  BiasedByte(-10, kWideBias),  BiasedByte(1, kWideBias),
    BiasedByte(13, kWideBias),   BiasedByte(25, kWideBias),   BiasedByte(38, kWideBias),
    BiasedByte(53, kWideBias),   BiasedByte(69, kWideBias),   BiasedByte(89, kWideBias),
    BiasedByte(113, kWideBias)};

template <>
struct Decoder<DType::kIQ4_NL> : BlockType<DType::kIQ4_NL> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    return SymmetricPairs(HalfPairs<kBlockBytes>(p), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 * kQuarter * kBlockBytes + 2;
    return Lookup16(Nibbles16x2(q, q + kBlockBytes), kIq4Table);
  }
};

// Twice the E2M1 values, plus the zero of the type to make them unsigned.
alignas(16) constexpr uint8_t kMxfp4Table[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                 12, 11, 10, 9,  8,  6,  4,  0};
static_assert(kMxfp4Table[0] == BlockType<DType::kMXFP4>::kZero);

template <>
struct Decoder<DType::kMXFP4> : BlockType<DType::kMXFP4> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    float scales[8];
    for (int i = 0; i < 8; ++i) {
      const uint32_t exponent = p[i * kBlockBytes];
      // 2^(exponent - 128): subnormal for exponents 0 and 1.
      const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
      std::memcpy(&scales[i], &bits, 4);
    }
    return SymmetricPairs(LoadPairs(scales), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 * kQuarter * kBlockBytes + 1;
    return Lookup16(Nibbles16x2(q, q + kBlockBytes), kMxfp4Table);
  }
};

// --- 256 elements per block ----------------------------------------------------------------------
// Eight scales and eight minima, one byte each; group 0 is the lowest byte.
struct PackedScales {
  uint64_t scale;
  uint64_t min;
};

// Unpacks the field `scales` of Q4_K and Q5_K: eight scales and eight minima of 6 bits.
RL_INLINE PackedScales UnpackSixBit(const uint8_t* s) {
  const uint32_t w0 = LoadU32(s), w1 = LoadU32(s + 4), w2 = LoadU32(s + 8);
  const uint32_t scale_high = (w2 & 0x0F0F0F0Fu) | ((w0 >> 6 & 0x03030303u) << 4);
  const uint32_t min_high = (w2 >> 4 & 0x0F0F0F0Fu) | ((w1 >> 6 & 0x03030303u) << 4);
  return {(w0 & 0x3F3F3F3Fu) | static_cast<uint64_t>(scale_high) << 32,
          (w1 & 0x3F3F3F3Fu) | static_cast<uint64_t>(min_high) << 32};
}

RL_INLINE F32x16 SixBitPairs(const uint8_t* p) {
  const PackedScales packed = UnpackSixBit(p + 4);
  constexpr uint32_t kUpperSign = 0x80000000u;  // negates dmin, since the minimum is subtracted
  return Mul(InterleavedBytes(packed.scale, packed.min), RepeatHalves(LoadU32(p) ^ kUpperSign));
}

template <>
struct Decoder<DType::kQ4_K> : BlockType<DType::kQ4_K> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) { return SixBitPairs(p); }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    return BroadcastShift<0, 4>(p + 16 + 32 * kQuarter, 15);
  }
};

template <>
struct Decoder<DType::kQ5_K> : BlockType<DType::kQ5_K> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) { return SixBitPairs(p); }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    return OrWhereByteBit<2 * kQuarter, 2 * kQuarter + 1, 16>(
        BroadcastShift<0, 4>(p + 48 + 32 * kQuarter, 15), p + 16);
  }
};

template <>
struct Decoder<DType::kQ6_K> : BlockType<DType::kQ6_K> {
  RL_INLINE static ScalePair Scales(const uint8_t* p) {
    return Symmetric(Mul(SignedBytes16(p + 192), Set1(LoadHalfScalar(p + 208))), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    constexpr int kHalf = kQuarter / 2;
    constexpr int kShift = 4 * (kQuarter % 2);
    const U8x64 low = LoadBytes(p + 64 * kHalf);
    const U8x64 high = BroadcastShift<kShift, kShift + 2>(p + 128 + 32 * kHalf, 3);
    return Or(MoveBits<kShift, 0, 15>(low), MoveBits<0, 4, 0x30>(high));
  }
};

template <>
struct Decoder<DType::kQ2_K> : BlockType<DType::kQ2_K> {
  RL_INLINE static ScalePair Scales(const uint8_t* p) {
    constexpr uint64_t kLow = 0x0F0F0F0F0F0F0F0Fu;
    const uint64_t packed[2] = {LoadU64(p), LoadU64(p + 8)};
    const uint64_t scale[2] = {packed[0] & kLow, packed[1] & kLow};
    const uint64_t min[2] = {packed[0] >> 4 & kLow, packed[1] >> 4 & kLow};
    uint8_t bytes[32];
    std::memcpy(bytes, scale, 16);
    std::memcpy(bytes + 16, min, 16);
    return {Mul(SignedBytes16(bytes), Set1(LoadHalfScalar(p + 80))),
            Mul(SignedBytes16(bytes + 16), Set1(-LoadHalfScalar(p + 82)))};
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    constexpr int kShift = 4 * (kQuarter % 2);
    return BroadcastShift<kShift, kShift + 2>(p + 16 + 32 * (kQuarter / 2), 3);
  }
};

template <>
struct Decoder<DType::kQ3_K> : BlockType<DType::kQ3_K> {
  RL_INLINE static ScalePair Scales(const uint8_t* p) {
    const uint8_t* s = p + 96;
    uint8_t bytes[16];
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
      const int high = s[8 + g % 4] >> (2 * (g / 4)) & 3;
      bytes[g] = static_cast<uint8_t>((low | high << 4) - 32);
    }
    return Symmetric(Mul(SignedBytes16(bytes), Set1(LoadHalfScalar(p + 108))), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    constexpr int kShift = 4 * (kQuarter % 2);
    // A set bit of hmask means that 4 is not subtracted: it becomes bit 2 of a quant with kZero
    // = 4.
    return OrWhereByteBit<2 * kQuarter, 2 * kQuarter + 1, 4>(
        BroadcastShift<kShift, kShift + 2>(p + 32 + 32 * (kQuarter / 2), 3), p);
  }
};

template <>
struct Decoder<DType::kIQ4_XS> : BlockType<DType::kIQ4_XS> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    const uint32_t high = p[2] | static_cast<uint32_t>(p[3]) << 8;
    const float d = LoadHalfScalar(p);
    float scales[8];
    for (int i = 0; i < 8; ++i) {
      const int low = p[4 + i / 2] >> (4 * (i % 2)) & 15;
      const int code = low | static_cast<int>(high >> (2 * i) & 3) << 4;
      scales[i] = d * static_cast<float>(code - 32);
    }
    return SymmetricPairs(LoadPairs(scales), kZero);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 8 + 32 * kQuarter;
    return Lookup16(Nibbles16x2(q, q + 16), kIq4Table);
  }
};

// The last, incomplete chunk of a row, padded with zero bytes so that decoders can read a whole
// chunk. Only types with 32 elements per block need it. The activations of the padding are zero.
template <DType T>
struct PaddedChunk {
  PaddedChunk() = default;  // undefined bytes
  explicit PaddedChunk(const uint8_t* chunk, size_t elements) : bytes{} {
    std::memcpy(bytes, chunk, elements / kBlockElements<T> * Decoder<T>::kBlockBytes);
  }
  uint8_t bytes[kChunkBytes<T>];
};

}  // namespace
}  // namespace rullama::cpu
