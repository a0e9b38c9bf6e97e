// Conversion of float rows to ActivationFormat::kSplitBf16: each float becomes the sum of two bf16
// numbers. Needs AVX-512. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/activation_format.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// bf16 numbers in the upper 16 bits of each lane. The lower 16 bits are zero in `high` and
// undefined in `low`.
struct SplitFloats {
  F32x16 high, low;
};

// x = high + low to a relative error of 2^-16; both are rounded to nearest. NaN and infinity become
// NaN. `high` is computed by Dekker's splitting (Numerische Mathematik 18, 1971), which preserves
// NaN.
RL_INLINE SplitFloats SplitBf16(const F32x16& x) {
  const F32x16 scaled = Mul(x, Set1(65537.0f));
  const F32x16 high = Sub(scaled, Sub(scaled, x));
  return {high, RoundUpperHalves(Sub(x, high))};
}

// Stores the parts of sixteen floats as bf16 numbers.
RL_INLINE void StoreSplit(const F32x16& x, uint16_t* high, uint16_t* low) {
  const SplitFloats parts = SplitBf16(x);
  StoreUpperHalves(high, parts.high);
  StoreUpperHalves(low, parts.low);
}

template <int kParts>
void SplitRowTo(const float* x, size_t k, uint16_t* high) {
  const size_t padded = PaddedLength(k);
  uint16_t* low = high + padded;
  for (size_t i = 0; i < padded; i += 16) {
    const size_t left = i < k ? k - i : 0;
    const SplitFloats parts = SplitBf16(left < 16 ? LoadPartial(x + i, left) : Load(x + i));
    StoreUpperHalves(high + i, parts.high);
    if constexpr (kParts == 2) StoreUpperHalves(low + i, parts.low);
  }
}

void SplitRow(const float* x, size_t k, ActivationBits bits, void* out) {
  auto* high = static_cast<uint16_t*>(out);
  bits == ActivationBits::k8 ? SplitRowTo<1>(x, k, high) : SplitRowTo<2>(x, k, high);
}

}  // namespace
}  // namespace rullama::cpu
