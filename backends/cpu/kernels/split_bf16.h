// Conversion of float rows to ActivationFormat::kSplitBf16: each float becomes the sum of up to
// three bf16 numbers. Needs AVX-512. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/activation_format.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// bf16 numbers in the upper 16 bits of each lane, the largest first. The lower 16 bits of the last
// part are undefined, those of the others zero.
template <int kParts>
struct SplitFloats {
  F32x16 part[kParts];
};

// x as a sum of bf16 numbers, each of which rounds what the ones before it left to nearest: to a
// relative error of 2^-8 with one part, 2^-16 with two, and exactly with three. NaN and infinity
// become NaN. All parts but the last are computed by Dekker's splitting (Numerische Mathematik 18,
// 1971), which preserves NaN.
template <int kParts>
RL_INLINE SplitFloats<kParts> SplitBf16(const F32x16& x) {
  SplitFloats<kParts> parts;
  F32x16 rest = x;
#pragma GCC unroll 3
  for (int p = 0; p < kParts; ++p) {
    if (p > 0 && p == kParts - 1) {
      parts.part[p] = RoundUpperHalves(rest);
      break;
    }
    const F32x16 scaled = Mul(rest, Set1(65537.0f));
    parts.part[p] = Sub(scaled, Sub(scaled, rest));
    rest = Sub(rest, parts.part[p]);
  }
  return parts;
}

// Stores the parts of sixteen floats as bf16 numbers, those of one part adjacent, `stride` numbers
// between parts.
template <int kParts>
RL_INLINE void StoreSplit(const F32x16& x, uint16_t* first, size_t stride) {
  const SplitFloats<kParts> parts = SplitBf16<kParts>(x);
#pragma GCC unroll 3
  for (int p = 0; p < kParts; ++p) {
    StoreUpperHalves(first + static_cast<size_t>(p) * stride, parts.part[p]);
  }
}

template <int kParts>
void SplitRowTo(const float* x, size_t k, uint16_t* out) {
  const size_t padded = PaddedLength(k);
  for (size_t i = 0; i < padded; i += 16) {
    const size_t left = i < k ? k - i : 0;
    StoreSplit<kParts>(left < 16 ? LoadPartial(x + i, left) : Load(x + i), out + i, padded);
  }
}

void SplitRow(const float* x, size_t k, ActivationBits bits, void* out) {
  auto* parts = static_cast<uint16_t*>(out);
  switch (bits) {
    case ActivationBits::k8:
      return SplitRowTo<1>(x, k, parts);
    case ActivationBits::k16:
      return SplitRowTo<2>(x, k, parts);
    case ActivationBits::k24:
      return SplitRowTo<3>(x, k, parts);
  }
}

}  // namespace
}  // namespace rullama::cpu
