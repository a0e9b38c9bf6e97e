// Quantisation of activation rows to ActivationFormat::kInt8Blocks (read through quantized_row.h).
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/activation_format.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// Sixteen quants: `high` with one part, 256 * high + low with two.
struct SplitQuants {
  I32x16 high, low;
};

template <int kParts>
RL_INLINE SplitQuants Split(const F32x16& scaled) {
  const I32x16 quant = RoundToInt(scaled);
  if constexpr (kParts == 1) return {quant, ZeroInt()};
  const I32x16 high = RoundToInt(Mul(ToFloat(quant), Set1(1.0f / 256.0f)));
  const F32x16 rest = Fma(ToFloat(high), Set1(-256.0f), ToFloat(quant));
  // Clamp 128 to 127 and -128 to -127: kernels may negate the bytes.
  return {high, RoundToInt(Max(Min(rest, Set1(127.0f)), Set1(-127.0f)))};
}

template <int kParts>
RL_INLINE int32_t SumOf(const SplitQuants& quants) {
  const int32_t high = ReduceAddInt(quants.high);
  return kParts == 1 ? high : 256 * high + ReduceAddInt(quants.low);
}

template <int kParts>
void QuantizeRowTo(const float* x, size_t k, void* out) {
  constexpr float kMaxQuant = kParts == 1 ? 127.0f : 127.0f * 257.0f;
  // Below this the reciprocal of the scale overflows. Such a block is stored as zeros.
  constexpr float kTiny = 1e-30f;
  const size_t padded = PaddedLength(k);
  auto* high = static_cast<int8_t*>(out);
  int8_t* low = high + padded;
  auto* scales = reinterpret_cast<float*>(high + padded * kParts);
  float* scaled_sum32 = scales + padded / 32;
  auto* quant_sum32 = reinterpret_cast<int32_t*>(scales + padded / 16);
  int32_t* quant_sum16 = quant_sum32 + padded / 32;
  const F32x16 zero = Zero();
  for (size_t begin = 0; begin < padded; begin += kActivationBlock) {
    const size_t left = begin < k ? k - begin : 0;
    const size_t n0 = left < 16 ? left : 16;
    const size_t n1 = left < 16 ? 0 : (left < 32 ? left - 16 : 16);
    F32x16 x0 = n0 == 16 ? Load(x + begin) : LoadPartial(x + begin, n0);
    F32x16 x1 = n1 == 16 ? Load(x + begin + 16) : LoadPartial(x + begin + n0, n1);
    // Zero if all values are finite, NaN otherwise.
    const float nan_or_zero = ReduceAdd(Add(Mul(x0, zero), Mul(x1, zero)));
    if (nan_or_zero != 0.0f) x0 = x1 = zero;
    const float largest = ReduceMax(Max(Abs(x0), Abs(x1)));
    const bool empty = !(largest > kTiny);
    const float scale = (empty ? 0.0f : largest / kMaxQuant) + nan_or_zero;
    const F32x16 inverse = Set1(empty ? 0.0f : kMaxQuant / largest);
    const SplitQuants quants[2] = {Split<kParts>(Mul(x0, inverse)),
                                   Split<kParts>(Mul(x1, inverse))};
    for (size_t half = 0; half < 2; ++half) {
      StoreInt8(high + begin + 16 * half, quants[half].high);
      if constexpr (kParts == 2) StoreInt8(low + begin + 16 * half, quants[half].low);
      quant_sum16[begin / 16 + half] = SumOf<kParts>(quants[half]);
    }
    const int32_t sum = quant_sum16[begin / 16] + quant_sum16[begin / 16 + 1];
    scales[begin / 32] = scale;
    quant_sum32[begin / 32] = sum;
    scaled_sum32[begin / 32] = scale * static_cast<float>(sum);
  }
}

void QuantizeRow(const float* x, size_t k, ActivationBits bits, void* out) {
  bits == ActivationBits::k8 ? QuantizeRowTo<1>(x, k, out) : QuantizeRowTo<2>(x, k, out);
}

}  // namespace
}  // namespace rullama::cpu
