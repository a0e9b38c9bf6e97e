// The part of the SIMD vocabulary that levels with vectors of 16 bytes share (simd_portable.h,
// simd_neon.h, simd_wasm.h): sixteen float or int32 lanes and 64 bytes as four vectors in the
// vector extensions of GCC and Clang. Every processor with such vectors has the operations used
// here, so they compile fast and to few instructions. The including header defines RL_INLINE first.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rullama::cpu {
namespace {

// The vectors of 16 bytes that all others consist of.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));
using Uint4 = uint32_t __attribute__((vector_size(16)));
using Byte16 = uint8_t __attribute__((vector_size(16)));
using Ulong2 = uint64_t __attribute__((vector_size(16)));
constexpr int kQuarters = 4;

struct F32x16 {
  Float4 v[kQuarters];
};
struct I32x16 {
  Int4 v[kQuarters];
};
struct U8x64 {
  Byte16 v[kQuarters];
};

template <typename To, typename From>
RL_INLINE To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}
template <typename Vector>
RL_INLINE Vector LoadQuarter(const void* p) {
  Vector r;
  std::memcpy(&r, p, sizeof(r));
  return r;
}
// Per lane: mask ? a : b. The lanes of the mask are 0 or -1.
RL_INLINE Float4 Blend(Int4 mask, Float4 a, Float4 b) {
  return BitCast<Float4>((mask & BitCast<Int4>(a)) | (~mask & BitCast<Int4>(b)));
}

// One quarter at a time: `i` is its index.
#define RL_QUARTERS(type, expression)                        \
  type r;                                                    \
  for (int i = 0; i < kQuarters; ++i) r.v[i] = (expression); \
  return r

// --- Sixteen floats ------------------------------------------------------------------------------
RL_INLINE F32x16 Set1(float x) { RL_QUARTERS(F32x16, (Float4{x, x, x, x})); }
RL_INLINE F32x16 Zero() { return F32x16{}; }
RL_INLINE F32x16 Load(const float* p) { RL_QUARTERS(F32x16, LoadQuarter<Float4>(p + 4 * i)); }
// Loads n lanes, 0 <= n <= 16; the other lanes are `fill`.
RL_INLINE F32x16 LoadPartial(const float* p, size_t n, float fill = 0.0f) {
  F32x16 r = Set1(fill);
  std::memcpy(&r, p, n * sizeof(float));
  return r;
}
RL_INLINE void Store(float* p, const F32x16& a) { std::memcpy(p, &a, sizeof(a)); }
RL_INLINE void StorePartial(float* p, size_t n, const F32x16& a) {
  std::memcpy(p, &a, n * sizeof(float));
}

RL_INLINE F32x16 Add(const F32x16& a, const F32x16& b) { RL_QUARTERS(F32x16, a.v[i] + b.v[i]); }
RL_INLINE F32x16 Sub(const F32x16& a, const F32x16& b) { RL_QUARTERS(F32x16, a.v[i] - b.v[i]); }
RL_INLINE F32x16 Mul(const F32x16& a, const F32x16& b) { RL_QUARTERS(F32x16, a.v[i] * b.v[i]); }
RL_INLINE F32x16 Div(const F32x16& a, const F32x16& b) { RL_QUARTERS(F32x16, a.v[i] / b.v[i]); }
// Where either operand is NaN, the result is the second operand.
RL_INLINE F32x16 Max(const F32x16& a, const F32x16& b) {
  RL_QUARTERS(F32x16, Blend(a.v[i] > b.v[i], a.v[i], b.v[i]));
}
RL_INLINE F32x16 Min(const F32x16& a, const F32x16& b) {
  RL_QUARTERS(F32x16, Blend(a.v[i] < b.v[i], a.v[i], b.v[i]));
}
RL_INLINE F32x16 Abs(const F32x16& a) {
  RL_QUARTERS(F32x16, BitCast<Float4>(BitCast<Int4>(a.v[i]) & 0x7FFFFFFF));
}
// Per lane: a < b ? x : y.
RL_INLINE F32x16 SelectLess(const F32x16& a, const F32x16& b, const F32x16& x, const F32x16& y) {
  RL_QUARTERS(F32x16, Blend(a.v[i] < b.v[i], x.v[i], y.v[i]));
}
// Reductions add the upper half of the lanes to the lower half, four times.
RL_INLINE float ReduceAdd(const F32x16& a) {
  const Float4 sums = (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// --- Integers ------------------------------------------------------------------------------------
RL_INLINE F32x16 ToFloat(const I32x16& a) {
  RL_QUARTERS(F32x16, __builtin_convertvector(a.v[i], Float4));
}
// 2^n for n in [-126, 127].
RL_INLINE F32x16 PowerOfTwo(const I32x16& n) {
  RL_QUARTERS(F32x16, BitCast<Float4>((n.v[i] + 127) << 23));
}
RL_INLINE I32x16 SubOne(const I32x16& a) { RL_QUARTERS(I32x16, a.v[i] - 1); }
RL_INLINE I32x16 Times256(const I32x16& a) { RL_QUARTERS(I32x16, a.v[i] << 8); }
RL_INLINE I32x16 AddInt(const I32x16& a, const I32x16& b) { RL_QUARTERS(I32x16, a.v[i] + b.v[i]); }
RL_INLINE I32x16 Set1Int(int32_t a) { RL_QUARTERS(I32x16, (Int4{a, a, a, a})); }
RL_INLINE I32x16 LoadInt(const int32_t* p) { RL_QUARTERS(I32x16, LoadQuarter<Int4>(p + 4 * i)); }
RL_INLINE I32x16 ZeroInt() { return I32x16{}; }
RL_INLINE int32_t ReduceAddInt(const I32x16& a) {
  const Int4 sums = (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

// --- 64 bytes of a weight row --------------------------------------------------------------------
RL_INLINE U8x64 LoadBytes(const uint8_t* p) { RL_QUARTERS(U8x64, LoadQuarter<Byte16>(p + 16 * i)); }
RL_INLINE void StoreBytes(uint8_t* p, const U8x64& a) { std::memcpy(p, &a, sizeof(a)); }
// 32 bytes from each of two addresses.
RL_INLINE U8x64 LoadBytes32x2(const uint8_t* lower, const uint8_t* upper) {
  RL_QUARTERS(U8x64, LoadQuarter<Byte16>((i < 2 ? lower : upper) + 16 * (i % 2)));
}
// Bytes [8 * i, 8 * i + 8): those of word(i), the lowest first.
template <typename F>
RL_INLINE U8x64 JoinWords(F word) {
  RL_QUARTERS(U8x64, BitCast<Byte16>(Ulong2{word(2 * i), word(2 * i + 1)}));
}
// The same 32 bytes in both halves, shifted right by kLower in the lower half and by kUpper in the
// upper half, then masked with `mask`.
template <int kLower, int kUpper>
RL_INLINE U8x64 BroadcastShift(const uint8_t* p, uint8_t mask) {
  RL_QUARTERS(U8x64, (LoadQuarter<Byte16>(p + 16 * (i % 2)) >> (i < 2 ? kLower : kUpper)) & mask);
}
// Low nibbles, then high nibbles of 16 bytes at `lower`; then the same of 16 bytes at `upper`.
RL_INLINE U8x64 Nibbles16x2(const uint8_t* lower, const uint8_t* upper) {
  const auto low = LoadQuarter<Byte16>(lower);
  const auto high = LoadQuarter<Byte16>(upper);
  return {{low & 15, low >> 4, high & 15, high >> 4}};
}
RL_INLINE U8x64 Or(const U8x64& a, const U8x64& b) { RL_QUARTERS(U8x64, a.v[i] | b.v[i]); }
// Byte i: 0xFF if bit i of the lower 16 is set, else 0.
RL_INLINE Byte16 MaskOfBits(uint64_t bits) {
  constexpr Byte16 kBit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const auto x = static_cast<uint8_t>(bits), y = static_cast<uint8_t>(bits >> 8);
  const Byte16 spread = {x, x, x, x, x, x, x, x, y, y, y, y, y, y, y, y};
  return BitCast<Byte16>((spread & kBit) != 0);
}
// Byte i: a | kValue if bit i of `bits` is set, else a.
template <uint8_t kValue>
RL_INLINE U8x64 OrWhereBit(const U8x64& a, uint64_t bits) {
  RL_QUARTERS(U8x64, a.v[i] | (MaskOfBits(bits >> (16 * i)) & kValue));
}
// Byte i: kFrom - a if bit i of `bits` is set, else a.
template <uint8_t kFrom>
RL_INLINE U8x64 SubtractWhereBit(const U8x64& a, uint64_t bits) {
  U8x64 r;
  for (int i = 0; i < kQuarters; ++i) {
    const Byte16 mask = MaskOfBits(bits >> (16 * i));
    r.v[i] = (a.v[i] & ~mask) | ((kFrom - a.v[i]) & mask);
  }
  return r;
}
// Byte i: a | kValue if bit kLower (lower half) or kUpper (upper half) of p[i % 32] is set, else a.
template <int kLower, int kUpper, uint8_t kValue>
RL_INLINE U8x64 OrWhereByteBit(const U8x64& a, const uint8_t* p) {
  constexpr uint8_t kMasks[2] = {1 << kLower, 1 << kUpper};
  U8x64 r;
  for (int i = 0; i < kQuarters; ++i) {
    const Byte16 bit = LoadQuarter<Byte16>(p + 16 * (i % 2)) & kMasks[i / 2];
    r.v[i] = a.v[i] | (BitCast<Byte16>(bit != 0) & kValue);
  }
  return r;
}
RL_INLINE U8x64 XorByte(const U8x64& a, uint8_t b) { RL_QUARTERS(U8x64, a.v[i] ^ b); }
// Shifts every byte so that bit kFrom moves to bit kTo, then masks with kMask. kMask must select
// only bits that come from the same byte.
template <int kFrom, int kTo, uint8_t kMask>
RL_INLINE U8x64 MoveBits(const U8x64& a) {
  if constexpr (kFrom < kTo) {
    RL_QUARTERS(U8x64, (a.v[i] << (kTo - kFrom)) & kMask);
  } else {
    RL_QUARTERS(U8x64, (a.v[i] >> (kFrom - kTo)) & kMask);
  }
}
// Lane i: byte 4 * i + kByte as an unsigned number; below, as a signed one.
template <int kByte>
RL_INLINE F32x16 ByteOfLane(const U8x64& a) {
  RL_QUARTERS(F32x16, __builtin_convertvector(
                          BitCast<Int4>((BitCast<Uint4>(a.v[i]) >> (8 * kByte)) & 0xFFu), Float4));
}
template <int kByte>
RL_INLINE F32x16 SignedByteOfLane(const U8x64& a) {
  RL_QUARTERS(F32x16,
              __builtin_convertvector((BitCast<Int4>(a.v[i]) << (24 - 8 * kByte)) >> 24, Float4));
}
// Lanes 0 to 7: pairs[4 * kQuarter], lanes 8 to 15: pairs[4 * kQuarter + 2].
template <int kQuarter>
RL_INLINE F32x16 SpreadEven(const F32x16& pairs) {
  const Float4 from = pairs.v[kQuarter];
  RL_QUARTERS(F32x16, (Float4{} + from[i / 2 * 2]));
}
// Lane i: scales[4 * kQuarter + i / 4].
template <int kQuarter>
RL_INLINE F32x16 SpreadScales(const F32x16& scales) {
  const Float4 from = scales.v[kQuarter];
  RL_QUARTERS(F32x16, (Float4{} + from[i]));
}
// Lane i: p[i / 2].
RL_INLINE F32x16 LoadPairs(const float* p) {
  RL_QUARTERS(F32x16, (Float4{p[2 * i], p[2 * i], p[2 * i + 1], p[2 * i + 1]}));
}
// Lane 2i: even[i]; lane 2i + 1: odd[i]; i < 8.
RL_INLINE F32x16 Interleave(const float* even, const float* odd) {
  RL_QUARTERS(F32x16, (Float4{even[2 * i], odd[2 * i], even[2 * i + 1], odd[2 * i + 1]}));
}
// Lanes 2i and 2i + 1: both lane 2i of a (RepeatEven) or both lane 2i + 1 (RepeatOdd).
RL_INLINE F32x16 RepeatEven(const F32x16& a) {
  RL_QUARTERS(F32x16, __builtin_shufflevector(a.v[i], a.v[i], 0, 0, 2, 2));
}
RL_INLINE F32x16 RepeatOdd(const F32x16& a) {
  RL_QUARTERS(F32x16, __builtin_shufflevector(a.v[i], a.v[i], 1, 1, 3, 3));
}
RL_INLINE F32x16 KeepOdd(const F32x16& a) {
  RL_QUARTERS(F32x16, BitCast<Float4>(BitCast<Int4>(a.v[i]) & Int4{0, -1, 0, -1}));
}
RL_INLINE uint32_t LoadHalfBits(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half;
}
RL_INLINE U8x64 AsBytes(const F32x16& a) { return BitCast<U8x64>(a); }
// Prefetch loads the cache line into L1, PrefetchFar into L2.
RL_INLINE void Prefetch(const void* p) { __builtin_prefetch(p); }
RL_INLINE void PrefetchFar(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace
}  // namespace rullama::cpu
