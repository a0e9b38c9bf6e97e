// Float rows as sums of two bf16 numbers (layout: kernels.h). Needs AVX-512.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// bf16 numbers in the upper halves of the lanes. The lower halves of `high` are zero, those of
// `low` anything.
struct SplitFloats {
  F32x16 high, low;
};

// x is high + low, to 2^-16 of it. Both are rounded to nearest. NaN stays NaN, infinity becomes
// NaN. The first step is Dekker's (Numerische Mathematik 18, 1971), which damaged numbers survive.
RL_INLINE SplitFloats SplitBfloat(const F32x16& x) {
  const F32x16 scaled = Mul(x, Set1(65537.0f));
  const F32x16 high = Sub(scaled, Sub(scaled, x));
  return {high, RoundUpperHalves(Sub(x, high))};
}

template <int kPlanes>
void SplitRowTo(const float* x, size_t k, uint16_t* high) {
  const size_t padded = PaddedLength(k);
  uint16_t* low = high + padded;
  for (size_t i = 0; i < padded; i += 16) {
    const size_t left = i < k ? k - i : 0;
    const SplitFloats parts = SplitBfloat(left < 16 ? LoadPartial(x + i, left) : Load(x + i));
    StoreUpperHalves(high + i, parts.high);
    if constexpr (kPlanes == 2) StoreUpperHalves(low + i, parts.low);
  }
}

void SplitRow(const float* x, size_t k, int planes, void* out) {
  auto* high = static_cast<uint16_t*>(out);
  planes == 1 ? SplitRowTo<1>(x, k, high) : SplitRowTo<2>(x, k, high);
}

}  // namespace
}  // namespace rullama::cpu
