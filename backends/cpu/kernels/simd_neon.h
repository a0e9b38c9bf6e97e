// The SIMD vocabulary with NEON intrinsics: that of simd_quarters.h and what simd_portable.h
// describes. Include through simd.h in a file that is compiled for AArch64. Internal linkage
// throughout.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "backends/cpu/kernels/isa.h"

#define RL_INLINE [[gnu::always_inline]] inline
#include "backends/cpu/kernels/simd_quarters.h"

namespace rullama::cpu {
namespace {

#ifdef __ARM_FEATURE_DOTPROD
constexpr Isa kIsa = Isa::kNeonDotProd;
#else
constexpr Isa kIsa = Isa::kNeon;
#endif
// Dot products take signed bytes, and quants of at most six bits are the same as signed ones.
constexpr bool kWideQuantsAreSigned = true;
// Sixteen int32 accumulators of four lanes, four vectors of quants and the activations of a step
// fill the 32 registers.
constexpr int kTilePanels = 1;
constexpr int kTileBatch = 4;
constexpr int kTileSteps = 4;
constexpr size_t kWeightedVectors = 1;
constexpr int kPackedGemvBatch = 2;
constexpr int kPackedGemvSums = 4;  // four registers each
constexpr int kAttentionSums = 4;

struct F64x16 {
  float64x2_t v[8];
};

RL_INLINE float HalfBitsToFloat(uint16_t half) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}
RL_INLINE uint16_t FloatToHalfBits(float value) {
  return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(value))), 0);
}

// --- Sixteen floats ------------------------------------------------------------------------------
RL_INLINE Float4 HalvesToFloats(uint16x4_t halves) {
  return vcvt_f32_f16(vreinterpret_f16_u16(halves));
}
RL_INLINE F32x16 LoadHalf(const uint16_t* p) {
  RL_QUARTERS(F32x16, HalvesToFloats(vld1_u16(p + 4 * i)));
}
RL_INLINE F32x16 LoadBf16(const uint16_t* p) {
  RL_QUARTERS(F32x16, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
RL_INLINE void StoreHalf(uint16_t* p, const F32x16& a) {
  for (int i = 0; i < kQuarters; ++i) {
    vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
  }
}
RL_INLINE F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  RL_QUARTERS(F32x16, vfmaq_f32(c.v[i], a.v[i], b.v[i]));
}
RL_INLINE uint32_t EqualMask(const F32x16& a, const F32x16& b) {
  constexpr Uint4 kLaneBits = {1, 2, 4, 8};
  uint32_t mask = 0;
  for (int i = 0; i < kQuarters; ++i) {
    mask |= vaddvq_u32(vandq_u32(vceqq_f32(a.v[i], b.v[i]), kLaneBits)) << (4 * i);
  }
  return mask;
}
RL_INLINE float ReduceMax(const F32x16& a) {
  const F32x16 upper = {{a.v[2], a.v[3], a.v[2], a.v[3]}};
  const F32x16 eight = Max(a, upper);
  return vmaxvq_f32(vmaxq_f32(eight.v[0], eight.v[1]));
}

// --- Integers ------------------------------------------------------------------------------------
RL_INLINE I32x16 RoundToInt(const F32x16& a) { RL_QUARTERS(I32x16, vcvtnq_s32_f32(a.v[i])); }
RL_INLINE void StoreInt8(int8_t* p, const I32x16& a) {
  for (int i = 0; i < kQuarters; i += 2) {
    const int16x8_t words = vcombine_s16(vmovn_s32(a.v[i]), vmovn_s32(a.v[i + 1]));
    vst1_s8(p + 4 * i, vmovn_s16(words));
  }
}

// --- Float64 sums --------------------------------------------------------------------------------
RL_INLINE F64x16 ZeroDouble() { return F64x16{}; }
RL_INLINE F64x16 ToDouble(const F32x16& a) {
  F64x16 r;
  for (int i = 0; i < kQuarters; ++i) {
    r.v[2 * i] = vcvt_f64_f32(vget_low_f32(a.v[i]));
    r.v[2 * i + 1] = vcvt_high_f64_f32(a.v[i]);
  }
  return r;
}
RL_INLINE F64x16 AddDouble(F64x16 acc, const F32x16& a) {
  const F64x16 x = ToDouble(a);
  for (int i = 0; i < 8; ++i) acc.v[i] = vaddq_f64(acc.v[i], x.v[i]);
  return acc;
}
RL_INLINE F64x16 AddSquareDouble(F64x16 acc, const F32x16& a) {
  const F64x16 x = ToDouble(a);
  for (int i = 0; i < 8; ++i) acc.v[i] = vfmaq_f64(acc.v[i], x.v[i], x.v[i]);
  return acc;
}
RL_INLINE double ReduceAddDouble(const F64x16& a) {
  float64x2_t four[4];
  for (int i = 0; i < 4; ++i) four[i] = vaddq_f64(a.v[i], a.v[i + 4]);
  return vaddvq_f64(vaddq_f64(vaddq_f64(four[0], four[2]), vaddq_f64(four[1], four[3])));
}

// --- 64 bytes of a weight row --------------------------------------------------------------------
RL_INLINE U8x64 Lookup16(const U8x64& a, const uint8_t* table) {
  const uint8x16_t entries = vld1q_u8(table);
  RL_QUARTERS(U8x64, vqtbl1q_u8(entries, a.v[i]));
}
template <int kHalf>
RL_INLINE F32x16 HalfOfLane(const U8x64& a) {
  RL_QUARTERS(F32x16, HalvesToFloats(vmovn_u32(BitCast<Uint4>(a.v[i]) >> (16 * kHalf))));
}

// Lane i: acc + the sum of four products.
RL_INLINE int32x4_t AddProducts(int32x4_t acc, int8x16_t quants, int8x16_t x) {
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(acc, quants, x);
#else
  // Pairs of products fit int16: 128 * 127 * 2.
  const int16x8_t lower = vmull_s8(vget_low_s8(quants), vget_low_s8(x));
  const int16x8_t upper = vmull_high_s8(quants, x);
  return vpadalq_s16(acc, vpaddq_s16(lower, upper));
#endif
}
template <bool kWide>
RL_INLINE I32x16 Dot(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  RL_QUARTERS(I32x16,
              AddProducts(acc.v[i], vreinterpretq_s8_u8(quants.v[i]), vld1q_s8(x + 16 * i)));
}
template <bool kWide>
RL_INLINE I32x16 DotBroadcast(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  const int8x16_t repeated = vreinterpretq_s8_s32(vdupq_n_s32(four));
  RL_QUARTERS(I32x16, AddProducts(acc.v[i], vreinterpretq_s8_u8(quants.v[i]), repeated));
}
template <bool kWide>
RL_INLINE I32x16 DotOnce(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  return DotBroadcast<kWide>(acc, quants, x);
}

RL_INLINE F32x16 BytesToFloats(uint8x16_t bytes) {
  const uint16x8_t lower = vmovl_u8(vget_low_u8(bytes)), upper = vmovl_high_u8(bytes);
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(lower))), vcvtq_f32_u32(vmovl_high_u16(lower)),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(upper))), vcvtq_f32_u32(vmovl_high_u16(upper))}};
}
RL_INLINE F32x16 InterleavedBytes(uint64_t even, uint64_t odd) {
  const uint8x8_t a = vcreate_u8(even), b = vcreate_u8(odd);
  return BytesToFloats(vcombine_u8(vzip1_u8(a, b), vzip2_u8(a, b)));
}
RL_INLINE F32x16 SignedBytes16(const uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t lower = vmovl_s8(vget_low_s8(bytes)), upper = vmovl_high_s8(bytes);
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(lower))), vcvtq_f32_s32(vmovl_high_s16(lower)),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(upper))), vcvtq_f32_s32(vmovl_high_s16(upper))}};
}
// Bits [shift, shift + 4) of 16 bytes.
RL_INLINE F32x16 Nibbles16(const uint8_t* p, int shift) {
  const uint8x16_t shifted = vshlq_u8(vld1q_u8(p), vdupq_n_s8(static_cast<int8_t>(-shift)));
  return BytesToFloats(vandq_u8(shifted, vdupq_n_u8(15)));
}
// The 16-bit number at p in lane kLane of `lanes`.
template <int kLane>
RL_INLINE uint16x4_t WithHalf(const uint8_t* p, uint16x4_t lanes) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return vset_lane_u16(half, lanes, kLane);
}
template <size_t kStride>
RL_INLINE F32x16 HalfPairs(const uint8_t* p) {
  F32x16 r;
  for (size_t i = 0; i < 2; ++i) {
    const uint8_t* q = p + 4 * i * kStride;
    uint16x4_t halves = WithHalf<0>(q, vdup_n_u16(0));
    halves = WithHalf<1>(q + kStride, halves);
    halves = WithHalf<2>(q + 2 * kStride, halves);
    halves = WithHalf<3>(q + 3 * kStride, halves);
    const float32x4_t four = HalvesToFloats(halves);
    r.v[2 * i] = vzip1q_f32(four, four);
    r.v[2 * i + 1] = vzip2q_f32(four, four);
  }
  return r;
}
template <size_t kStride>
RL_INLINE F32x16 HalfTwos(const uint8_t* p) {
  F32x16 r;
  for (size_t i = 0; i < kQuarters; ++i) {
    uint32_t two[2];
    std::memcpy(&two[0], p + 2 * i * kStride, 4);
    std::memcpy(&two[1], p + (2 * i + 1) * kStride, 4);
    r.v[i] = HalvesToFloats(vreinterpret_u16_u32(vld1_u32(two)));
  }
  return r;
}
RL_INLINE F32x16 RepeatHalves(uint32_t two) {
  const Float4 floats = HalvesToFloats(vreinterpret_u16_u32(vdup_n_u32(two)));
  return {{floats, floats, floats, floats}};
}

// Transposes four rows of four dwords; row j of the result goes to out + j * stride.
RL_INLINE void StoreTransposed4(const uint32x4_t r[4], uint8_t* out, size_t stride) {
  const uint64x2_t a = vreinterpretq_u64_u32(vzip1q_u32(r[0], r[1]));
  const uint64x2_t b = vreinterpretq_u64_u32(vzip1q_u32(r[2], r[3]));
  const uint64x2_t c = vreinterpretq_u64_u32(vzip2q_u32(r[0], r[1]));
  const uint64x2_t d = vreinterpretq_u64_u32(vzip2q_u32(r[2], r[3]));
  vst1q_u8(out, vreinterpretq_u8_u64(vzip1q_u64(a, b)));
  vst1q_u8(out + stride, vreinterpretq_u8_u64(vzip2q_u64(a, b)));
  vst1q_u8(out + 2 * stride, vreinterpretq_u8_u64(vzip1q_u64(c, d)));
  vst1q_u8(out + 3 * stride, vreinterpretq_u8_u64(vzip2q_u64(c, d)));
}
RL_INLINE void StoreTransposed(const U8x64 rows[16], uint8_t* out, size_t stride) {
  for (size_t i = 0; i < 16; i += 4) {
    for (size_t quarter = 0; quarter < kQuarters; ++quarter) {
      uint32x4_t four[4];
      for (size_t r = 0; r < 4; ++r) four[r] = vreinterpretq_u32_u8(rows[i + r].v[quarter]);
      StoreTransposed4(four, out + 4 * i + 4 * quarter * stride, stride);
    }
  }
}

#undef RL_QUARTERS

}  // namespace
}  // namespace rullama::cpu
