// Activation rows as int8 blocks of 32 (layout: kernels.h) and their views.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// One quantised row, as the products read it.
struct QuantizedRow {
  const int8_t* codes;
  const float* scale;  // per 32
  const float* sum32;
  const float* sum16;
};

RL_INLINE QuantizedRow ViewRow(const void* row, size_t k) {
  const size_t padded = PaddedLength(k);
  const auto* codes = static_cast<const int8_t*>(row);
  const auto* scale = reinterpret_cast<const float*>(codes + padded);
  return {codes, scale, scale + padded / 32, scale + padded / 16};
}

void QuantizeRow(const float* x, size_t k, void* out) {
  constexpr float kMaxCode = 127.0f;
  // Below this the reciprocal of the scale overflows; such a block is zero for any product.
  constexpr float kTiny = 1e-30f;
  const size_t padded = PaddedLength(k);
  auto* codes = static_cast<int8_t*>(out);
  auto* scales = reinterpret_cast<float*>(codes + padded);
  float* sum32 = scales + padded / 32;
  float* sum16 = scales + padded / 16;
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
    const I32x16 c0 = RoundToInt(Mul(x0, inverse));
    const I32x16 c1 = RoundToInt(Mul(x1, inverse));
    StoreInt8(codes + begin, c0);
    StoreInt8(codes + begin + 16, c1);
    const int32_t s0 = ReduceAddInt(c0);
    const int32_t s1 = ReduceAddInt(c1);
    const size_t block = begin / kActivationBlock;
    scales[block] = scale;
    sum32[block] = scale * static_cast<float>(s0 + s1);
    sum16[2 * block] = scale * static_cast<float>(s0);
    sum16[2 * block + 1] = scale * static_cast<float>(s1);
  }
}

}  // namespace
}  // namespace rullama::cpu
