// The SIMD vocabulary with the vectors of WebAssembly: that of simd_quarters.h and what
// simd_portable.h describes. Include through simd.h in a file that is compiled for WebAssembly with
// SIMD128. Engines turn most of these operations into one or two instructions of x86 and ARM.
// Internal linkage throughout.
#pragma once

#include <wasm_simd128.h>

#include <cstring>

#include "backends/cpu/kernels/isa.h"

#define RL_INLINE [[gnu::always_inline]] inline
#include "backends/cpu/kernels/simd_quarters.h"

namespace rullama::cpu {
namespace {

// The baseline of builds for WebAssembly, which have no other level.
constexpr Isa kIsa = Isa::kPortable;
// Dot products take signed bytes, and quants of at most six bits are the same as signed ones.
constexpr bool kWideQuantsAreSigned = true;
// The engine allocates the registers: 16 of them on x86, 32 on ARM.
constexpr int kTilePanels = 1;
constexpr int kTileBatch = 2;
constexpr int kTileSteps = 4;
constexpr size_t kWeightedVectors = 1;
constexpr int kPackedGemvBatch = 2;
constexpr int kPackedGemvSums = 2;
constexpr int kAttentionSums = 4;

struct F64x16 {
  v128_t v[8];
};

template <typename Vector>
RL_INLINE v128_t V128(const Vector& a) {
  return BitCast<v128_t>(a);
}

// Four f16 numbers in the low halves of the lanes; the high halves are zero. As a float of the same
// exponent field a finite one is smaller by the difference of the two biases, subnormals included.
RL_INLINE Float4 HalvesToFloats(Uint4 half) {
  const Uint4 magnitude = (half & 0x7FFFu) << 13;
  const Float4 finite = BitCast<Float4>(magnitude) * 0x1p112f;
  const auto special = BitCast<Uint4>(magnitude >= (0x7C00u << 13)) & 0x7F800000u;
  return BitCast<Float4>(BitCast<Uint4>(finite) | special | (half & 0x8000u) << 16);
}

RL_INLINE float HalfBitsToFloat(uint16_t half) {
  return HalvesToFloats(Uint4{half, half, half, half})[0];
}

// Rounds to nearest even. The low halves of the lanes have the results.
RL_INLINE Uint4 FloatsToHalves(Float4 value) {
  const auto bits = BitCast<Uint4>(value);
  const Uint4 magnitude = bits & 0x7FFFFFFFu;
  const Uint4 odd = (magnitude >> 13) & 1u;
  const Uint4 normal = (magnitude - 0x38000000u + 0xFFFu + odd) >> 13;
  // Adding 0.5 aligns the subnormal grid with the mantissa; the addition rounds to nearest even.
  const Uint4 subnormal = BitCast<Uint4>(BitCast<Float4>(magnitude) + 0.5f) - 0x3F000000u;
  const auto small = BitCast<Uint4>(magnitude < 0x38800000u);
  const auto large = BitCast<Uint4>(magnitude >= 0x477FF000u);
  const auto nan = BitCast<Uint4>(magnitude > 0x7F800000u);
  const Uint4 finite = (small & subnormal) | (~small & normal);
  const Uint4 result = (large & (0x7C00u | (nan & 0x0200u))) | (~large & finite);
  return result | (bits >> 16 & 0x8000u);
}

RL_INLINE uint16_t FloatToHalfBits(float value) {
  return static_cast<uint16_t>(FloatsToHalves(Float4{value, value, value, value})[0]);
}

// --- Sixteen floats ------------------------------------------------------------------------------
RL_INLINE F32x16 LoadHalf(const uint16_t* p) {
  RL_QUARTERS(F32x16, HalvesToFloats(BitCast<Uint4>(wasm_u32x4_load16x4(p + 4 * i))));
}
RL_INLINE F32x16 LoadBf16(const uint16_t* p) {
  RL_QUARTERS(F32x16, BitCast<Float4>(wasm_i32x4_shl(wasm_u32x4_load16x4(p + 4 * i), 16)));
}
RL_INLINE void StoreHalf(uint16_t* p, const F32x16& a) {
  for (int i = 0; i < kQuarters; i += 2) {
    const v128_t lower = V128(FloatsToHalves(a.v[i])), upper = V128(FloatsToHalves(a.v[i + 1]));
    wasm_v128_store(p + 4 * i, wasm_u16x8_narrow_i32x4(lower, upper));
  }
}
// Two roundings: the fused operation of WebAssembly is one of relaxed SIMD, whose results depend on
// the processor.
RL_INLINE F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  RL_QUARTERS(F32x16, a.v[i] * b.v[i] + c.v[i]);
}
RL_INLINE uint32_t EqualMask(const F32x16& a, const F32x16& b) {
  uint32_t mask = 0;
  for (int i = 0; i < kQuarters; ++i) {
    mask |= wasm_i32x4_bitmask(V128(a.v[i] == b.v[i])) << (4 * i);
  }
  return mask;
}
RL_INLINE float ReduceMax(const F32x16& a) {
  const F32x16 upper = {{a.v[2], a.v[3], a.v[2], a.v[3]}};
  const F32x16 eight = Max(a, upper);
  const Float4 lanes = Max(eight, {{eight.v[1], eight.v[1], eight.v[1], eight.v[1]}}).v[0];
  float largest = lanes[0];
  for (int i = 1; i < 4; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}

// --- Integers ------------------------------------------------------------------------------------
RL_INLINE I32x16 RoundToInt(const F32x16& a) {
  constexpr float kMagic = 0x1.8p23f;  // puts the integer into the low mantissa bits
  RL_QUARTERS(I32x16, BitCast<Int4>(BitCast<Uint4>(a.v[i] + kMagic) - 0x4B400000u));
}
RL_INLINE void StoreInt8(int8_t* p, const I32x16& a) {
  const v128_t lower = wasm_i16x8_narrow_i32x4(V128(a.v[0]), V128(a.v[1]));
  const v128_t upper = wasm_i16x8_narrow_i32x4(V128(a.v[2]), V128(a.v[3]));
  wasm_v128_store(p, wasm_i8x16_narrow_i16x8(lower, upper));
}

// --- Float64 sums --------------------------------------------------------------------------------
RL_INLINE F64x16 ZeroDouble() { return F64x16{}; }
RL_INLINE F64x16 ToDouble(const F32x16& a) {
  F64x16 r;
  for (int i = 0; i < kQuarters; ++i) {
    r.v[2 * i] = wasm_f64x2_promote_low_f32x4(V128(a.v[i]));
    r.v[2 * i + 1] =
        wasm_f64x2_promote_low_f32x4(wasm_i64x2_shuffle(V128(a.v[i]), V128(a.v[i]), 1, 1));
  }
  return r;
}
RL_INLINE F64x16 AddDouble(F64x16 acc, const F32x16& a) {
  const F64x16 x = ToDouble(a);
  for (int i = 0; i < 8; ++i) acc.v[i] = wasm_f64x2_add(acc.v[i], x.v[i]);
  return acc;
}
RL_INLINE F64x16 AddSquareDouble(F64x16 acc, const F32x16& a) {
  const F64x16 x = ToDouble(a);
  for (int i = 0; i < 8; ++i) {
    acc.v[i] = wasm_f64x2_add(acc.v[i], wasm_f64x2_mul(x.v[i], x.v[i]));
  }
  return acc;
}
RL_INLINE double ReduceAddDouble(const F64x16& a) {
  v128_t sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = wasm_f64x2_add(a.v[i], a.v[i + 4]);
  const v128_t two =
      wasm_f64x2_add(wasm_f64x2_add(sums[0], sums[2]), wasm_f64x2_add(sums[1], sums[3]));
  return wasm_f64x2_extract_lane(two, 0) + wasm_f64x2_extract_lane(two, 1);
}

// --- 64 bytes of a weight row --------------------------------------------------------------------
RL_INLINE U8x64 Lookup16(const U8x64& a, const uint8_t* table) {
  const v128_t entries = wasm_v128_load(table);
  RL_QUARTERS(U8x64, BitCast<Byte16>(wasm_i8x16_swizzle(entries, V128(a.v[i]))));
}
template <int kHalf>
RL_INLINE F32x16 HalfOfLane(const U8x64& a) {
  RL_QUARTERS(F32x16, HalvesToFloats((BitCast<Uint4>(a.v[i]) >> (16 * kHalf)) & 0xFFFFu));
}

// The bytes of even places, and those of odd ones, as 16-bit numbers.
struct EvenAndOdd {
  v128_t even;
  v128_t odd;
};
RL_INLINE EvenAndOdd SignedParts(v128_t a) {
  return {wasm_i16x8_shr(wasm_i16x8_shl(a, 8), 8), wasm_i16x8_shr(a, 8)};
}
RL_INLINE EvenAndOdd UnsignedParts(v128_t a) {
  return {wasm_v128_and(a, wasm_i16x8_const_splat(0xFF)), wasm_u16x8_shr(a, 8)};
}
// Lane i: acc + the sum of four products. Two products are added in 16 bits: a quant times an
// activation is at most 128 * 127.
template <bool kWide>
RL_INLINE Int4 AddProducts(const Int4& acc, const Byte16& quants, const EvenAndOdd& x) {
  const v128_t bytes = V128(quants);
  const EvenAndOdd q = kWide ? SignedParts(bytes) : UnsignedParts(bytes);
  const v128_t pairs = wasm_i16x8_add(wasm_i16x8_mul(q.even, x.even), wasm_i16x8_mul(q.odd, x.odd));
  return acc + BitCast<Int4>(wasm_i32x4_extadd_pairwise_i16x8(pairs));
}
template <bool kWide>
RL_INLINE I32x16 Dot(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  RL_QUARTERS(I32x16,
              AddProducts<kWide>(acc.v[i], quants.v[i], SignedParts(wasm_v128_load(x + 16 * i))));
}
template <bool kWide>
RL_INLINE I32x16 DotBroadcast(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  const EvenAndOdd repeated = SignedParts(wasm_v128_load32_splat(x));
  RL_QUARTERS(I32x16, AddProducts<kWide>(acc.v[i], quants.v[i], repeated));
}
template <bool kWide>
RL_INLINE I32x16 DotOnce(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  return DotBroadcast<kWide>(acc, quants, x);
}

RL_INLINE F32x16 BytesToFloats(v128_t bytes) {
  const v128_t lower = wasm_u16x8_extend_low_u8x16(bytes);
  const v128_t upper = wasm_u16x8_extend_high_u8x16(bytes);
  const v128_t words[kQuarters] = {
      wasm_u32x4_extend_low_u16x8(lower), wasm_u32x4_extend_high_u16x8(lower),
      wasm_u32x4_extend_low_u16x8(upper), wasm_u32x4_extend_high_u16x8(upper)};
  RL_QUARTERS(F32x16, BitCast<Float4>(wasm_f32x4_convert_i32x4(words[i])));
}
RL_INLINE F32x16 InterleavedBytes(uint64_t even, uint64_t odd) {
  const v128_t a = V128(Ulong2{even, 0}), b = V128(Ulong2{odd, 0});
  return BytesToFloats(
      wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
}
RL_INLINE F32x16 SignedBytes16(const uint8_t* p) {
  const v128_t bytes = wasm_v128_load(p);
  const v128_t lower = wasm_i16x8_extend_low_i8x16(bytes);
  const v128_t upper = wasm_i16x8_extend_high_i8x16(bytes);
  const v128_t words[kQuarters] = {
      wasm_i32x4_extend_low_i16x8(lower), wasm_i32x4_extend_high_i16x8(lower),
      wasm_i32x4_extend_low_i16x8(upper), wasm_i32x4_extend_high_i16x8(upper)};
  RL_QUARTERS(F32x16, BitCast<Float4>(wasm_f32x4_convert_i32x4(words[i])));
}
// Bits [shift, shift + 4) of 16 bytes.
RL_INLINE F32x16 Nibbles16(const uint8_t* p, int shift) {
  const v128_t shifted = wasm_u8x16_shr(wasm_v128_load(p), static_cast<uint32_t>(shift));
  return BytesToFloats(wasm_v128_and(shifted, wasm_i8x16_const_splat(15)));
}
template <size_t kStride>
RL_INLINE F32x16 HalfPairs(const uint8_t* p) {
  F32x16 r;
  for (size_t i = 0; i < kQuarters; ++i) {
    const uint32_t first = LoadHalfBits(p + 2 * i * kStride);
    const uint32_t second = LoadHalfBits(p + (2 * i + 1) * kStride);
    r.v[i] = HalvesToFloats(Uint4{first, first, second, second});
  }
  return r;
}
template <size_t kStride>
RL_INLINE F32x16 HalfTwos(const uint8_t* p) {
  F32x16 r;
  for (size_t i = 0; i < kQuarters; ++i) {
    const uint8_t* first = p + 2 * i * kStride;
    const uint8_t* second = first + kStride;
    r.v[i] = HalvesToFloats(Uint4{LoadHalfBits(first), LoadHalfBits(first + 2),
                                  LoadHalfBits(second), LoadHalfBits(second + 2)});
  }
  return r;
}
RL_INLINE F32x16 RepeatHalves(uint32_t two) {
  const uint32_t lower = two & 0xFFFFu;
  const uint32_t upper = two >> 16;
  const Float4 both = HalvesToFloats(Uint4{lower, upper, lower, upper});
  return {{both, both, both, both}};
}

// Transposes four rows of four dwords; row j of the result goes to out + j * stride.
RL_INLINE void StoreTransposed4(const v128_t r[4], uint8_t* out, size_t stride) {
  const v128_t a = wasm_i32x4_shuffle(r[0], r[1], 0, 4, 1, 5);
  const v128_t b = wasm_i32x4_shuffle(r[2], r[3], 0, 4, 1, 5);
  const v128_t c = wasm_i32x4_shuffle(r[0], r[1], 2, 6, 3, 7);
  const v128_t d = wasm_i32x4_shuffle(r[2], r[3], 2, 6, 3, 7);
  wasm_v128_store(out, wasm_i64x2_shuffle(a, b, 0, 2));
  wasm_v128_store(out + stride, wasm_i64x2_shuffle(a, b, 1, 3));
  wasm_v128_store(out + 2 * stride, wasm_i64x2_shuffle(c, d, 0, 2));
  wasm_v128_store(out + 3 * stride, wasm_i64x2_shuffle(c, d, 1, 3));
}
RL_INLINE void StoreTransposed(const U8x64 rows[16], uint8_t* out, size_t stride) {
  for (size_t i = 0; i < 16; i += 4) {
    for (size_t quarter = 0; quarter < kQuarters; ++quarter) {
      v128_t four[4];
      for (size_t r = 0; r < 4; ++r) four[r] = V128(rows[i + r].v[quarter]);
      StoreTransposed4(four, out + 4 * i + 4 * quarter * stride, stride);
    }
  }
}

#undef RL_QUARTERS

}  // namespace
}  // namespace rullama::cpu
