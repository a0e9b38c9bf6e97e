// Row kernels of the cross entropy. Sums over a vocabulary are float64. Internal linkage
// throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/simd.h"
#include "backends/cpu/kernels/vector_math.h"

namespace rullama::cpu {
namespace {

struct SoftmaxParts {
  float shift;  // the largest logit; 0 in a row of only -inf
  double sum;   // of exp(z - shift): 0 in such a row, NaN if a logit is NaN or +inf
};

RL_INLINE SoftmaxParts PartsOfSoftmax(const float* z, size_t n) {
  const float largest = Largest(z, n);
  const float shift = largest == -kInfinity ? 0.0f : largest;
  F64x16 sum = ZeroDouble();
  ForEachRun(n, [&](size_t i, size_t count) {
    sum = AddDouble(sum, Exp(Sub(LoadPartial(z + i, count, -kInfinity), Set1(shift))));
  });
  return {shift, ReduceAddDouble(sum)};
}

// ln(sum) + (max - logit), in this order: the logarithm is small compared with both.
float CrossEntropyRow(const float* z, size_t n, size_t target) {
  const SoftmaxParts parts = PartsOfSoftmax(z, n);
  if (parts.sum == 0) return kInfinity;
  const double distance = static_cast<double>(parts.shift) - static_cast<double>(z[target]);
  return static_cast<float>(__builtin_log(parts.sum) + distance);
}

// factor (softmax(z) - onehot(target)), times 1 - (z / cap)^2 if cap > 0.
void CrossEntropyGradRow(const float* z, size_t n, size_t target, float factor, float cap,
                         float* dz) {
  const SoftmaxParts parts = PartsOfSoftmax(z, n);
  const F32x16 shift = Set1(parts.shift), factors = Set1(factor);
  const F32x16 scale = Set1(parts.sum == 0 ? 1.0f : static_cast<float>(1.0 / parts.sum));
  const F32x16 one = Set1(1.0f), rate = Set1(cap > 0 ? 1.0f / cap : 0.0f);
  const auto slope = [&](const F32x16& v) {
    const F32x16 ratio = Mul(v, rate);
    return cap > 0 ? Sub(one, Mul(ratio, ratio)) : one;
  };
  const auto mass = [&](const F32x16& v) { return Mul(Exp(Sub(v, shift)), scale); };
  const F32x16 of_target = Set1(z[target]);
  float at_target[16];
  Store(at_target, Mul(Mul(Sub(mass(of_target), one), factors), slope(of_target)));
  MapRow(z, n, dz, [&](const F32x16& v) { return Mul(Mul(mass(v), factors), slope(v)); });
  dz[target] = at_target[0];
}

}  // namespace
}  // namespace rullama::cpu
