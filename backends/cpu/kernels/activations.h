// Activation rows as int8 blocks of 32 (layout: kernels.h) and their views.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// One quantised row, as the products read it.
struct QuantizedRow {
  const int8_t* high;
  const int8_t* low;   // with two planes
  const float* scale;  // per 32
  const float* sum32;
  const int32_t* codes32;
  const int32_t* codes16;
};

RL_INLINE QuantizedRow ViewRow(const void* row, size_t k, int planes) {
  const size_t padded = PaddedLength(k);
  const auto* codes = static_cast<const int8_t*>(row);
  const auto* scale = reinterpret_cast<const float*>(codes + padded * static_cast<size_t>(planes));
  const auto* sums = reinterpret_cast<const int32_t*>(scale + padded / 16);
  return {codes, codes + padded, scale, scale + padded / 32, sums, sums + padded / 32};
}

// The same row from element k on, a multiple of 32.
RL_INLINE QuantizedRow From(const QuantizedRow& x, size_t k) {
  return {x.high + k,       x.low + k,          x.scale + k / 32,
          x.sum32 + k / 32, x.codes32 + k / 32, x.codes16 + k / 16};
}

// Sixteen codes as bytes: high alone, or 256 * high + low.
struct SplitCodes {
  I32x16 high, low;
};

template <int kPlanes>
RL_INLINE SplitCodes Split(const F32x16& scaled) {
  const I32x16 code = RoundToInt(scaled);
  if constexpr (kPlanes == 1) return {code, ZeroInt()};
  const I32x16 high = RoundToInt(Mul(ToFloat(code), Set1(1.0f / 256.0f)));
  const F32x16 rest = Fma(ToFloat(high), Set1(-256.0f), ToFloat(code));
  // A rest of 128 becomes 127: kernels may negate bytes.
  return {high, RoundToInt(Max(Min(rest, Set1(127.0f)), Set1(-127.0f)))};
}

template <int kPlanes>
RL_INLINE int32_t SumOf(const SplitCodes& codes) {
  const int32_t high = ReduceAddInt(codes.high);
  return kPlanes == 1 ? high : 256 * high + ReduceAddInt(codes.low);
}

template <int kPlanes>
void QuantizeRowTo(const float* x, size_t k, void* out) {
  constexpr float kMaxCode = kPlanes == 1 ? 127.0f : 127.0f * 257.0f;
  // Below this the reciprocal of the scale overflows; such a block is zero for any product.
  constexpr float kTiny = 1e-30f;
  const size_t padded = PaddedLength(k);
  auto* high = static_cast<int8_t*>(out);
  int8_t* low = high + padded;
  auto* scales = reinterpret_cast<float*>(high + padded * kPlanes);
  float* sum32 = scales + padded / 32;
  auto* codes32 = reinterpret_cast<int32_t*>(scales + padded / 16);
  int32_t* codes16 = codes32 + padded / 32;
  const F32x16 zero = Zero();
  for (size_t begin = 0; begin < padded; begin += kActivationBlock) {
    const size_t left = begin < k ? k - begin : 0;
    const size_t n0 = left < 16 ? left : 16;
    const size_t n1 = left < 16 ? 0 : (left < 32 ? left - 16 : 16);
    F32x16 x0 = n0 == 16 ? Load(x + begin) : LoadPartial(x + begin, n0);
    F32x16 x1 = n1 == 16 ? Load(x + begin + 16) : LoadPartial(x + begin + n0, n1);
    // Zero for finite values, NaN otherwise.
    const float poison = ReduceAdd(Add(Mul(x0, zero), Mul(x1, zero)));
    if (poison != 0.0f) x0 = x1 = zero;
    const float largest = ReduceMax(Max(Abs(x0), Abs(x1)));
    const bool empty = !(largest > kTiny);
    const float scale = (empty ? 0.0f : largest / kMaxCode) + poison;
    const F32x16 inverse = Set1(empty ? 0.0f : kMaxCode / largest);
    const SplitCodes codes[2] = {Split<kPlanes>(Mul(x0, inverse)),
                                 Split<kPlanes>(Mul(x1, inverse))};
    for (size_t half = 0; half < 2; ++half) {
      StoreInt8(high + begin + 16 * half, codes[half].high);
      if constexpr (kPlanes == 2) StoreInt8(low + begin + 16 * half, codes[half].low);
      codes16[begin / 16 + half] = SumOf<kPlanes>(codes[half]);
    }
    const int32_t sum = codes16[begin / 16] + codes16[begin / 16 + 1];
    scales[begin / 32] = scale;
    codes32[begin / 32] = sum;
    sum32[begin / 32] = scale * static_cast<float>(sum);
  }
}

void QuantizeRow(const float* x, size_t k, int planes, void* out) {
  planes == 1 ? QuantizeRowTo<1>(x, k, out) : QuantizeRowTo<2>(x, k, out);
}

}  // namespace
}  // namespace rullama::cpu
