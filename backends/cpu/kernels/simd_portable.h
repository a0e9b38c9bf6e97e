// The SIMD vocabulary of the kernels in plain C++: sixteen float or int32 lanes and 64 bytes. The
// headers simd_avx2.h and simd_avx512.h define the same names with intrinsics; a translation unit
// gets exactly one of the three (simd.h).
//
// Everything here and in the kernel templates has internal linkage: the same names are compiled
// with different instruction sets, and a shared inline function could be taken from the wrong one.
#pragma once

#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/kernel_table.h"

#define RL_INLINE inline

namespace rullama::cpu {
namespace {

constexpr Isa kIsa = Isa::kPortable;
// True if the dot product takes wide quants (Decoder::kWide) as signed bytes. Other quants are
// always unsigned.
constexpr bool kWideQuantsAreSigned = true;
constexpr int kTilePanels = 1;       // GEMM register tile: panels of sixteen weight rows
constexpr int kTileBatch = 4;        // GEMM register tile: batch rows
constexpr int kPackedGemvBatch = 4;  // packed GEMV: most batch rows per pass
constexpr int kPackedGemvSums = 16;  // packed GEMV: int32 accumulators that fit in registers

struct F32x16 {
  float v[16];
};
struct I32x16 {
  int32_t v[16];
};
struct U8x64 {
  uint8_t v[64];
};
struct F64x16 {
  double v[16];
};

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
RL_INLINE F32x16 Set1(float x) {
  F32x16 r;
  for (float& v : r.v) v = x;
  return r;
}
RL_INLINE F32x16 Zero() { return Set1(0.0f); }
RL_INLINE F32x16 Load(const float* p) {
  F32x16 r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
// Loads n lanes, 0 <= n <= 16; the other lanes are `fill`.
RL_INLINE F32x16 LoadPartial(const float* p, size_t n, float fill = 0.0f) {
  F32x16 r = Set1(fill);
  std::memcpy(r.v, p, n * sizeof(float));
  return r;
}
RL_INLINE void Store(float* p, const F32x16& a) { std::memcpy(p, a.v, sizeof(a.v)); }
RL_INLINE void StorePartial(float* p, size_t n, const F32x16& a) {
  std::memcpy(p, a.v, n * sizeof(float));
}
RL_INLINE F32x16 LoadHalf(const uint16_t* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = HalfBitsToFloat(p[i]);
  return r;
}
RL_INLINE F32x16 LoadBf16(const uint16_t* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
    std::memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
RL_INLINE void StoreHalf(uint16_t* p, const F32x16& a) {
  for (int i = 0; i < 16; ++i) p[i] = FloatToHalfBits(a.v[i]);
}

#define RL_LANES(type, expression)                    \
  type r;                                             \
  for (int i = 0; i < 16; ++i) r.v[i] = (expression); \
  return r
RL_INLINE F32x16 Add(const F32x16& a, const F32x16& b) { RL_LANES(F32x16, a.v[i] + b.v[i]); }
RL_INLINE F32x16 Sub(const F32x16& a, const F32x16& b) { RL_LANES(F32x16, a.v[i] - b.v[i]); }
RL_INLINE F32x16 Mul(const F32x16& a, const F32x16& b) { RL_LANES(F32x16, a.v[i] * b.v[i]); }
RL_INLINE F32x16 Div(const F32x16& a, const F32x16& b) { RL_LANES(F32x16, a.v[i] / b.v[i]); }
// a * b + c, in two roundings here and in one where the level has FMA.
RL_INLINE F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  RL_LANES(F32x16, a.v[i] * b.v[i] + c.v[i]);
}
// Where either operand is NaN, the result is the second operand.
RL_INLINE F32x16 Max(const F32x16& a, const F32x16& b) {
  RL_LANES(F32x16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
RL_INLINE F32x16 Min(const F32x16& a, const F32x16& b) {
  RL_LANES(F32x16, a.v[i] < b.v[i] ? a.v[i] : b.v[i]);
}
RL_INLINE F32x16 Abs(const F32x16& a) { RL_LANES(F32x16, std::fabs(a.v[i])); }
// Per lane: a < b ? x : y.
RL_INLINE F32x16 SelectLess(const F32x16& a, const F32x16& b, const F32x16& x, const F32x16& y) {
  RL_LANES(F32x16, a.v[i] < b.v[i] ? x.v[i] : y.v[i]);
}
RL_INLINE uint32_t EqualMask(const F32x16& a, const F32x16& b) {
  uint32_t mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<uint32_t>(a.v[i] == b.v[i]) << i;
  return mask;
}
// Reductions add the upper half of the lanes to the lower half, four times.
RL_INLINE float ReduceAdd(F32x16 a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] += a.v[i + width];
  }
  return a.v[0];
}
RL_INLINE float ReduceMax(F32x16 a) {
  for (int i = 1; i < 16; ++i) a.v[0] = a.v[i] > a.v[0] ? a.v[i] : a.v[0];
  return a.v[0];
}

// --- Integers ------------------------------------------------------------------------------------
RL_INLINE F32x16 ToFloat(const I32x16& a) { RL_LANES(F32x16, static_cast<float>(a.v[i])); }
// Nearest integer, ties to even, for magnitudes below 2^22; beyond, the result is undefined but
// does not trap.
RL_INLINE I32x16 RoundToInt(const F32x16& a) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) {
    constexpr float kMagic = 0x1.8p23f;  // puts the integer into the low mantissa bits
    const float shifted = a.v[i] + kMagic;
    int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    r.v[i] = static_cast<int32_t>(static_cast<uint32_t>(bits) - 0x4B400000u);
  }
  return r;
}
// 2^n for n in [-126, 127].
RL_INLINE F32x16 PowerOfTwo(const I32x16& n) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits = static_cast<uint32_t>(n.v[i] + 127) << 23;
    std::memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
RL_INLINE I32x16 SubOne(const I32x16& a) { RL_LANES(I32x16, a.v[i] - 1); }
RL_INLINE I32x16 Times256(const I32x16& a) { RL_LANES(I32x16, a.v[i] * 256); }
RL_INLINE I32x16 AddInt(const I32x16& a, const I32x16& b) { RL_LANES(I32x16, a.v[i] + b.v[i]); }
RL_INLINE I32x16 Set1Int(int32_t a) { RL_LANES(I32x16, a); }
RL_INLINE I32x16 LoadInt(const int32_t* p) { RL_LANES(I32x16, p[i]); }
RL_INLINE I32x16 ZeroInt() { return I32x16{}; }
RL_INLINE int32_t ReduceAddInt(const I32x16& a) {
  int32_t sum = 0;
  for (int32_t v : a.v) sum += v;
  return sum;
}
// Stores the lanes as int8; every value must fit.
RL_INLINE void StoreInt8(int8_t* p, const I32x16& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(static_cast<uint32_t>(a.v[i]) & 0xFFu);
}

// --- Float64 sums --------------------------------------------------------------------------------
RL_INLINE F64x16 ZeroDouble() { return F64x16{}; }
RL_INLINE F64x16 AddDouble(F64x16 acc, const F32x16& a) {
  for (int i = 0; i < 16; ++i) acc.v[i] += static_cast<double>(a.v[i]);
  return acc;
}
RL_INLINE F64x16 AddSquareDouble(F64x16 acc, const F32x16& a) {
  for (int i = 0; i < 16; ++i) {
    acc.v[i] += static_cast<double>(a.v[i]) * static_cast<double>(a.v[i]);
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
RL_INLINE U8x64 LoadBytes(const uint8_t* p) {
  U8x64 r;
  std::memcpy(r.v, p, 64);
  return r;
}
RL_INLINE void StoreBytes(uint8_t* p, const U8x64& a) { std::memcpy(p, a.v, 64); }
// 32 bytes from each of two addresses.
RL_INLINE U8x64 LoadBytes32x2(const uint8_t* lower, const uint8_t* upper) {
  U8x64 r;
  std::memcpy(r.v, lower, 32);
  std::memcpy(r.v + 32, upper, 32);
  return r;
}
#define RL_BYTES(expression)                                              \
  U8x64 r;                                                                \
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<uint8_t>(expression); \
  return r
// The same 32 bytes in both halves, shifted right by kLower in the lower half and by kUpper in the
// upper half, then masked with `mask`.
template <int kLower, int kUpper>
RL_INLINE U8x64 BroadcastShift(const uint8_t* p, uint8_t mask) {
  U8x64 r;
  for (int i = 0; i < 32; ++i) {
    r.v[i] = static_cast<uint8_t>((p[i] >> kLower) & mask);
    r.v[i + 32] = static_cast<uint8_t>((p[i] >> kUpper) & mask);
  }
  return r;
}
// Low nibbles, then high nibbles of 16 bytes at `lower`; then the same of 16 bytes at `upper`.
RL_INLINE U8x64 Nibbles16x2(const uint8_t* lower, const uint8_t* upper) {
  U8x64 r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = static_cast<uint8_t>(lower[i] & 15);
    r.v[i + 16] = static_cast<uint8_t>(lower[i] >> 4);
    r.v[i + 32] = static_cast<uint8_t>(upper[i] & 15);
    r.v[i + 48] = static_cast<uint8_t>(upper[i] >> 4);
  }
  return r;
}
RL_INLINE U8x64 Or(const U8x64& a, const U8x64& b) { RL_BYTES(a.v[i] | b.v[i]); }
// Byte i: a | kValue if bit i of `bits` is set, else a.
template <uint8_t kValue>
RL_INLINE U8x64 OrWhereBit(const U8x64& a, uint64_t bits) {
  RL_BYTES(a.v[i] | ((bits >> i) & 1 ? kValue : 0));
}
// Byte i: a | kValue if bit kLower (lower half) or kUpper (upper half) of p[i % 32] is set, else a.
template <int kLower, int kUpper, uint8_t kValue>
RL_INLINE U8x64 OrWhereByteBit(const U8x64& a, const uint8_t* p) {
  RL_BYTES(a.v[i] | ((p[i & 31] >> (i < 32 ? kLower : kUpper)) & 1 ? kValue : 0));
}
// table[a] with 16 entries; every byte of a is below 16.
RL_INLINE U8x64 Lookup16(const U8x64& a, const uint8_t* table) { RL_BYTES(table[a.v[i]]); }
RL_INLINE U8x64 XorByte(const U8x64& a, uint8_t b) { RL_BYTES(a.v[i] ^ b); }
// Shifts every byte so that bit kFrom moves to bit kTo, then masks with kMask. kMask must select
// only bits that come from the same byte.
template <int kFrom, int kTo, uint8_t kMask>
RL_INLINE U8x64 MoveBits(const U8x64& a) {
  constexpr int kLeft = kFrom < kTo ? kTo - kFrom : 0;
  constexpr int kRight = kFrom > kTo ? kFrom - kTo : 0;
  RL_BYTES((a.v[i] << kLeft >> kRight) & kMask);
}
// Lane i: byte 4 * i + kByte as an unsigned number; below, as a signed one.
template <int kByte>
RL_INLINE F32x16 ByteOfLane(const U8x64& a) {
  RL_LANES(F32x16, static_cast<float>(a.v[4 * i + kByte]));
}
template <int kByte>
RL_INLINE F32x16 SignedByteOfLane(const U8x64& a) {
  RL_LANES(F32x16, static_cast<float>(static_cast<int8_t>(a.v[4 * i + kByte])));
}
// Lane i: the f16 number in the lower (kHalf = 0) or upper (1) half of dword i.
template <int kHalf>
RL_INLINE F32x16 HalfOfLane(const U8x64& a) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    uint16_t half;
    std::memcpy(&half, a.v + 4 * i + 2 * kHalf, 2);
    r.v[i] = HalfBitsToFloat(half);
  }
  return r;
}

// Lane i: acc + sum over j < 4 of quants[4i + j] * x[4i + j], exact.
template <bool kWide>
RL_INLINE I32x16 Dot(I32x16 acc, const U8x64& quants, const int8_t* x) {
  int16_t products[64];  // |quant * x| is at most 128 * 127 or 63 * 127
  for (int i = 0; i < 64; ++i) {
    const int quant = kWide ? static_cast<int8_t>(quants.v[i]) : quants.v[i];
    products[i] = static_cast<int16_t>(quant * x[i]);
  }
  for (int i = 0; i < 16; ++i) {
    acc.v[i] += products[4 * i] + products[4 * i + 1] + products[4 * i + 2] + products[4 * i + 3];
  }
  return acc;
}
// Dot with the same four values of x for every lane.
template <bool kWide>
RL_INLINE I32x16 DotBroadcast(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  int8_t repeated[64];
  for (int i = 0; i < 16; ++i) std::memcpy(repeated + 4 * i, x, 4);
  return Dot<kWide>(acc, quants, repeated);
}
// DotBroadcast for x that only one product reads; levels may use a memory operand.
template <bool kWide>
RL_INLINE I32x16 DotOnce(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  return DotBroadcast<kWide>(acc, quants, x);
}
// Lanes 0 to 7: pairs[4 * kQuarter], lanes 8 to 15: pairs[4 * kQuarter + 2].
template <int kQuarter>
RL_INLINE F32x16 SpreadEven(const F32x16& pairs) {
  RL_LANES(F32x16, pairs.v[4 * kQuarter + i / 8 * 2]);
}
// Lane i: scales[4 * kQuarter + i / 4].
template <int kQuarter>
RL_INLINE F32x16 SpreadScales(const F32x16& scales) {
  RL_LANES(F32x16, scales.v[4 * kQuarter + i / 4]);
}
// Lane i: p[i / 2].
RL_INLINE F32x16 LoadPairs(const float* p) { RL_LANES(F32x16, p[i / 2]); }
// Lane 2i: byte i of `even` (lowest first); lane 2i + 1: byte i of `odd`.
RL_INLINE F32x16 InterleavedBytes(uint64_t even, uint64_t odd) {
  RL_LANES(F32x16, static_cast<float>(((i % 2 == 0 ? even : odd) >> (8 * (i / 2))) & 0xFF));
}
// Lane 2i: even[i]; lane 2i + 1: odd[i]; i < 8.
RL_INLINE F32x16 Interleave(const float* even, const float* odd) {
  RL_LANES(F32x16, (i % 2 == 0 ? even : odd)[i / 2]);
}
// Lanes 2i and 2i + 1: both lane 2i of a (RepeatEven) or both lane 2i + 1 (RepeatOdd).
RL_INLINE F32x16 RepeatEven(const F32x16& a) { RL_LANES(F32x16, a.v[i / 2 * 2]); }
RL_INLINE F32x16 RepeatOdd(const F32x16& a) { RL_LANES(F32x16, a.v[i / 2 * 2 + 1]); }
RL_INLINE F32x16 KeepOdd(const F32x16& a) { RL_LANES(F32x16, i % 2 == 0 ? 0.0f : a.v[i]); }
RL_INLINE F32x16 SignedBytes16(const uint8_t* p) {
  RL_LANES(F32x16, static_cast<float>(static_cast<int8_t>(p[i])));
}
// Eight f16 numbers kStride bytes apart, each in two lanes.
template <size_t kStride>
RL_INLINE F32x16 HalfPairs(const uint8_t* p) {
  F32x16 r;
  for (int i = 0; i < 8; ++i) {
    uint16_t half;
    std::memcpy(&half, p + i * kStride, 2);
    r.v[2 * i] = r.v[2 * i + 1] = HalfBitsToFloat(half);
  }
  return r;
}
// Eight pairs of adjacent f16 numbers, the pairs kStride bytes apart.
template <size_t kStride>
RL_INLINE F32x16 HalfTwos(const uint8_t* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    uint16_t half;
    std::memcpy(&half, p + i / 2 * kStride + i % 2 * 2, 2);
    r.v[i] = HalfBitsToFloat(half);
  }
  return r;
}
// Lane 2i: the f16 number in the lower half of `two`; lane 2i + 1: the one in the upper half.
RL_INLINE F32x16 RepeatHalves(uint32_t two) {
  RL_LANES(F32x16, HalfBitsToFloat(static_cast<uint16_t>(two >> (i % 2 * 16))));
}
// Transposes 16 rows of 16 dwords: dword j of row i goes to out + j * stride + 4 * i.
RL_INLINE void StoreTransposed(const U8x64 rows[16], uint8_t* out, size_t stride) {
  for (int j = 0; j < 16; ++j) {
    for (int i = 0; i < 16; ++i) std::memcpy(out + j * stride + 4 * i, rows[i].v + 4 * j, 4);
  }
}
RL_INLINE U8x64 AsBytes(const F32x16& a) {
  U8x64 r;
  std::memcpy(r.v, a.v, 64);
  return r;
}
// Prefetch loads the cache line into L1, PrefetchFar into L2.
RL_INLINE void Prefetch(const void* p) { __builtin_prefetch(p); }
RL_INLINE void PrefetchFar(const void* p) { __builtin_prefetch(p, 0, 2); }

#undef RL_LANES
#undef RL_BYTES

}  // namespace
}  // namespace rullama::cpu
