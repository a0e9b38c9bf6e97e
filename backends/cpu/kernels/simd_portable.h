// The SIMD vocabulary of the kernels without intrinsics: that of simd_quarters.h and what needs
// lanes of other sizes or single lanes. The headers simd_avx2.h, simd_avx512.h, simd_neon.h and
// simd_wasm.h define the same names with intrinsics; a translation unit gets exactly one (simd.h).
//
// Everything here and in the kernel templates has internal linkage: the same names are compiled
// with different instruction sets, and a shared inline function could be taken from the wrong one.
#pragma once

#include <cstring>

#include "backends/cpu/kernels/isa.h"

#define RL_INLINE inline
#include "backends/cpu/kernels/simd_quarters.h"

namespace rullama::cpu {
namespace {

constexpr Isa kIsa = Isa::kPortable;
// True if the dot product takes wide quants (BlockType::kWide) as signed bytes. Other quants are
// always unsigned.
constexpr bool kWideQuantsAreSigned = true;
constexpr int kTilePanels = 1;          // GEMM register tile: panels of sixteen weight rows
constexpr int kTileBatch = 4;           // GEMM register tile: batch rows
constexpr int kTileSteps = 8;           // GEMM register tile: unrolled steps of four elements
constexpr size_t kWeightedVectors = 1;  // AddWeightedRows: vectors of each sum in registers
constexpr int kPackedGemvBatch = 4;     // packed GEMV: most batch rows per pass
constexpr int kPackedGemvSums = 16;     // packed GEMV: int32 accumulators that fit in registers
constexpr int kAttentionSums = 16;      // attention: sums of a block

using Short8 = int16_t __attribute__((vector_size(16)));
using Ushort8 = uint16_t __attribute__((vector_size(16)));

struct F64x16 {
  double v[16];
};
// The lanes of a vector as an array, for operations that move them.
struct Lanes16 {
  float v[16];
};

// f16 numbers in the low halves of the lanes; the high halves are zero.
RL_INLINE Float4 HalfBitsToFloats(Uint4 half) {
  const Uint4 sign = (half & 0x8000u) << 16;
  const Uint4 magnitude = half & 0x7FFFu;
  constexpr uint32_t kRebias = 112u << 23;  // from the exponent bias 15 to 127
  const Uint4 normal = (magnitude << 13) + kRebias;
  const auto is_special = BitCast<Uint4>(magnitude >= 0x7C00u);
  // Infinity and NaN: the largest exponent of f32 in place of that of f16.
  const Uint4 bits = normal + (is_special & kRebias);
  const Float4 subnormal = __builtin_convertvector(BitCast<Int4>(magnitude), Float4) * 0x1p-24f;
  const Float4 value = Blend(BitCast<Int4>(magnitude < 0x400u), subnormal, BitCast<Float4>(bits));
  return BitCast<Float4>(BitCast<Uint4>(value) | sign);
}

RL_INLINE float HalfBitsToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  uint32_t bits;
  if (magnitude >= 0x7C00u) {
    bits = 0x7F800000u | ((magnitude & 0x3FFu) << 13);
  } else if (magnitude >= 0x400u) {
    bits = (magnitude << 13) + (112u << 23);
  } else {
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    std::memcpy(&bits, &subnormal, 4);
  }
  bits |= sign;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

RL_INLINE uint16_t FloatToHalfBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {
    // Adding 0.5 aligns the subnormal grid with the mantissa; the addition rounds to nearest even.
    float aligned;
    std::memcpy(&aligned, &magnitude, 4);
    aligned += 0.5f;
    uint32_t aligned_bits;
    std::memcpy(&aligned_bits, &aligned, 4);
    return static_cast<uint16_t>(sign | (aligned_bits - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

// --- Sixteen floats ------------------------------------------------------------------------------
RL_INLINE F32x16 LoadHalf(const uint16_t* p) {
  RL_QUARTERS(F32x16, HalfBitsToFloats(Uint4{p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]}));
}
RL_INLINE F32x16 LoadBf16(const uint16_t* p) {
  RL_QUARTERS(F32x16,
              BitCast<Float4>(Uint4{p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]} << 16));
}
RL_INLINE void StoreHalf(uint16_t* p, const F32x16& a) {
  const auto lanes = BitCast<Lanes16>(a);
  for (int i = 0; i < 16; ++i) p[i] = FloatToHalfBits(lanes.v[i]);
}

// a * b + c, in two roundings here and in one where the level has FMA.
RL_INLINE F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  RL_QUARTERS(F32x16, a.v[i] * b.v[i] + c.v[i]);
}
RL_INLINE uint32_t EqualMask(const F32x16& a, const F32x16& b) {
  uint32_t mask = 0;
  for (int i = 0; i < kQuarters; ++i) {
    const Int4 bits = (a.v[i] == b.v[i]) & Int4{1, 2, 4, 8};
    mask |= static_cast<uint32_t>(bits[0] | bits[1] | bits[2] | bits[3]) << (4 * i);
  }
  return mask;
}
RL_INLINE float ReduceMax(const F32x16& a) {
  const auto lanes = BitCast<Lanes16>(a);
  float largest = lanes.v[0];
  for (int i = 1; i < 16; ++i) largest = lanes.v[i] > largest ? lanes.v[i] : largest;
  return largest;
}

// --- Integers ------------------------------------------------------------------------------------
// Nearest integer, ties to even, for magnitudes below 2^22; beyond, the result is undefined but
// does not trap.
RL_INLINE I32x16 RoundToInt(const F32x16& a) {
  constexpr float kMagic = 0x1.8p23f;  // puts the integer into the low mantissa bits
  RL_QUARTERS(I32x16, BitCast<Int4>(BitCast<Uint4>(a.v[i] + kMagic) - 0x4B400000u));
}
// Stores the lanes as int8; every value must fit.
RL_INLINE void StoreInt8(int8_t* p, const I32x16& a) {
  int32_t lanes[16];
  std::memcpy(lanes, &a, sizeof(lanes));
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(static_cast<uint32_t>(lanes[i]) & 0xFFu);
}

// --- Float64 sums --------------------------------------------------------------------------------
RL_INLINE F64x16 ZeroDouble() { return F64x16{}; }
RL_INLINE F64x16 AddDouble(F64x16 acc, const F32x16& a) {
  const auto lanes = BitCast<Lanes16>(a);
  for (int i = 0; i < 16; ++i) acc.v[i] += static_cast<double>(lanes.v[i]);
  return acc;
}
RL_INLINE F64x16 AddSquareDouble(F64x16 acc, const F32x16& a) {
  const auto lanes = BitCast<Lanes16>(a);
  for (int i = 0; i < 16; ++i) {
    acc.v[i] += static_cast<double>(lanes.v[i]) * static_cast<double>(lanes.v[i]);
  }
  return acc;
}
RL_INLINE double ReduceAddDouble(F64x16 a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] += a.v[i + width];
  }
  return a.v[0];
}

// --- 64 bytes of a weight row --------------------------------------------------------------------
// table[a] with 16 entries; every byte of a is below 16.
RL_INLINE U8x64 Lookup16(const U8x64& a, const uint8_t* table) {
  uint8_t bytes[64];
  std::memcpy(bytes, &a, sizeof(bytes));
  for (uint8_t& byte : bytes) byte = table[byte];
  return LoadBytes(bytes);
}
// Lane i: the f16 number in the lower (kHalf = 0) or upper (1) half of dword i.
template <int kHalf>
RL_INLINE F32x16 HalfOfLane(const U8x64& a) {
  RL_QUARTERS(F32x16, HalfBitsToFloats((BitCast<Uint4>(a.v[i]) >> (16 * kHalf)) & 0xFFFFu));
}

// Per lane: the sum over j < 4 of the products of bytes j, exact. The products of two bytes are
// added in 16 bits: a quant times an activation is at most 128 * 127.
template <bool kWide>
RL_INLINE Int4 DotQuarter(Byte16 quants, Byte16 x) {
  const auto q = BitCast<Short8>(quants);
  const auto a = BitCast<Short8>(x);
  Short8 q_even, q_odd;
  if constexpr (kWide) {
    q_even = (q << 8) >> 8;
    q_odd = q >> 8;
  } else {
    q_even = q & 0xFF;
    q_odd = BitCast<Short8>(BitCast<Ushort8>(quants) >> 8);
  }
  const Short8 sums = q_even * ((a << 8) >> 8) + q_odd * (a >> 8);
  const auto pairs = BitCast<Int4>(sums);
  return ((pairs << 16) >> 16) + (pairs >> 16);
}
// Lane i: acc + sum over j < 4 of quants[4i + j] * x[4i + j], exact.
template <bool kWide>
RL_INLINE I32x16 Dot(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  RL_QUARTERS(I32x16, acc.v[i] + DotQuarter<kWide>(quants.v[i], LoadQuarter<Byte16>(x + 16 * i)));
}
// Dot with the same four values of x for every lane.
template <bool kWide>
RL_INLINE I32x16 DotBroadcast(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  const auto repeated = BitCast<Byte16>(Int4{four, four, four, four});
  RL_QUARTERS(I32x16, acc.v[i] + DotQuarter<kWide>(quants.v[i], repeated));
}
// DotBroadcast for x that only one product reads; levels may use a memory operand.
template <bool kWide>
RL_INLINE I32x16 DotOnce(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  return DotBroadcast<kWide>(acc, quants, x);
}
// Lane 2i: byte i of `even` (lowest first); lane 2i + 1: byte i of `odd`.
RL_INLINE F32x16 InterleavedBytes(uint64_t even, uint64_t odd) {
  Lanes16 lanes;
  for (int i = 0; i < 8; ++i) {
    lanes.v[2 * i] = static_cast<float>((even >> (8 * i)) & 0xFF);
    lanes.v[2 * i + 1] = static_cast<float>((odd >> (8 * i)) & 0xFF);
  }
  return Load(lanes.v);
}
RL_INLINE F32x16 SignedBytes16(const uint8_t* p) {
  Lanes16 lanes;
  for (int i = 0; i < 16; ++i) lanes.v[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return Load(lanes.v);
}
// Bits [shift, shift + 4) of 16 bytes.
RL_INLINE F32x16 Nibbles16(const uint8_t* p, int shift) {
  Lanes16 lanes;
  for (int i = 0; i < 16; ++i) lanes.v[i] = static_cast<float>(p[i] >> shift & 15);
  return Load(lanes.v);
}
// Eight f16 numbers kStride bytes apart, each in two lanes.
template <size_t kStride>
RL_INLINE F32x16 HalfPairs(const uint8_t* p) {
  F32x16 r;
  for (int i = 0; i < kQuarters; ++i) {
    const uint32_t first = LoadHalfBits(p + static_cast<size_t>(2 * i) * kStride);
    const uint32_t second = LoadHalfBits(p + static_cast<size_t>(2 * i + 1) * kStride);
    r.v[i] = HalfBitsToFloats(Uint4{first, first, second, second});
  }
  return r;
}
// Eight pairs of adjacent f16 numbers, the pairs kStride bytes apart.
template <size_t kStride>
RL_INLINE F32x16 HalfTwos(const uint8_t* p) {
  F32x16 r;
  for (int i = 0; i < kQuarters; ++i) {
    const uint8_t* first = p + static_cast<size_t>(2 * i) * kStride;
    const uint8_t* second = first + kStride;
    r.v[i] = HalfBitsToFloats(Uint4{LoadHalfBits(first), LoadHalfBits(first + 2),
                                    LoadHalfBits(second), LoadHalfBits(second + 2)});
  }
  return r;
}
// Lane 2i: the f16 number in the lower half of `two`; lane 2i + 1: the one in the upper half.
RL_INLINE F32x16 RepeatHalves(uint32_t two) {
  const uint32_t lower = two & 0xFFFFu;
  const uint32_t upper = two >> 16;
  const Float4 both = HalfBitsToFloats(Uint4{lower, upper, lower, upper});
  return {{both, both, both, both}};
}
// Transposes 16 rows of 16 dwords: dword j of row i goes to out + j * stride + 4 * i.
RL_INLINE void StoreTransposed(const U8x64 rows[16], uint8_t* out, size_t stride) {
  const auto* dwords = reinterpret_cast<const uint8_t*>(rows);
  for (size_t j = 0; j < 16; ++j) {
    for (size_t i = 0; i < 16; ++i) {
      std::memcpy(out + j * stride + 4 * i, dwords + 64 * i + 4 * j, 4);
    }
  }
}

#undef RL_QUARTERS

}  // namespace
}  // namespace rullama::cpu
