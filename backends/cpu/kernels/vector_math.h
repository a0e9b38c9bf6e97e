// Building blocks of row kernels: loops over a row, transcendental functions, and reductions. exp,
// tanh and gelu have a relative error of at most 2e-7 for finite inputs; NaN propagates. Internal
// linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

// --- Loops over a row ----------------------------------------------------------------------------
template <typename F>
RL_INLINE void MapRow(const float* x, size_t n, float* out, F f) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, f(Load(x + i)));
  if (i < n) StorePartial(out + i, n - i, f(LoadPartial(x + i, n - i)));
}
template <typename F>
RL_INLINE void MapRows(const float* a, const float* b, size_t n, float* out, F f) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, f(Load(a + i), Load(b + i)));
  if (i < n) {
    StorePartial(out + i, n - i, f(LoadPartial(a + i, n - i), LoadPartial(b + i, n - i)));
  }
}

// Calls f(index, count) for runs of at most 16 elements.
template <typename F>
RL_INLINE void ForEachRun(size_t n, F f) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, size_t{16});
  if (i < n) f(i, n - i);
}

// --- Transcendentals -----------------------------------------------------------------------------
struct Expm1Parts {
  F32x16 p;  // e^r - 1 for the reduced argument
  I32x16 n;  // e^x = 2^n (1 + p)
};

// |x| below 128. r = x - n ln 2 lies within ln(2) / 2, where the seventh-degree series of e^r - 1
// is exact to 2e-8 relative.
RL_INLINE Expm1Parts ReduceExp(const F32x16& x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;            // 16 bits: its product with n is exact
  constexpr float kLn2Low = 1.42860682030941723e-6f;  // ln 2 - kLn2High
  const I32x16 n = RoundToInt(Mul(x, Set1(kLog2E)));
  const F32x16 nf = ToFloat(n);
  F32x16 r = Sub(x, Mul(nf, Set1(kLn2High)));
  r = Sub(r, Mul(nf, Set1(kLn2Low)));
  F32x16 series = Set1(1.0f / 5040.0f);
  series = Fma(series, r, Set1(1.0f / 720.0f));
  series = Fma(series, r, Set1(1.0f / 120.0f));
  series = Fma(series, r, Set1(1.0f / 24.0f));
  series = Fma(series, r, Set1(1.0f / 6.0f));
  series = Fma(series, r, Set1(0.5f));
  return {Fma(Mul(r, r), series, r), n};
}

// e^x; zero below 2.5e-38, infinity from 3.4e38 on.
RL_INLINE F32x16 Exp(const F32x16& x) {
  constexpr float kLowest = -86.5f;
  constexpr float kHighest = 89.0f;  // e^89 overflows by itself
  const F32x16 clamped = Min(Set1(kHighest), Max(Set1(kLowest), x));
  const Expm1Parts parts = ReduceExp(clamped);
  // n reaches 128, one more than the largest exponent: compute half of the power, then double.
  const F32x16 half_power = PowerOfTwo(SubOne(parts.n));
  const F32x16 half = Fma(half_power, parts.p, half_power);
  return SelectLess(x, Set1(kLowest), Zero(), Add(half, half));
}

RL_INLINE F32x16 Tanh(const F32x16& x) {
  constexpr float kSaturated = 20.0f;  // tanh(10) rounds to one
  const F32x16 twice = Min(Set1(kSaturated), Add(Abs(x), Abs(x)));
  const Expm1Parts parts = ReduceExp(twice);
  const F32x16 power = PowerOfTwo(parts.n);
  // e^t - 1 = 2^n p + (2^n - 1) keeps its relative accuracy down to t = 0.
  const F32x16 expm1 = Fma(power, parts.p, Sub(power, Set1(1.0f)));
  const F32x16 magnitude = Div(expm1, Add(expm1, Set1(2.0f)));
  return SelectLess(x, Zero(), Sub(Zero(), magnitude), magnitude);
}

// x (1 + tanh u) / 2 = x / (1 + e^-2u) with u = sqrt(2 / pi) x (1 + 0.044715 x^2): the logistic
// form keeps the relative accuracy of the negative tail.
RL_INLINE F32x16 GeluTanh(const F32x16& x) {
  constexpr float kMinusTwoSqrt2OverPi = -1.5957691216057308f;
  constexpr float kCubic = 0.044715f;
  const F32x16 inner = Fma(Mul(Mul(x, x), Set1(kCubic)), x, x);
  return Div(x, Add(Set1(1.0f), Exp(Mul(inner, Set1(kMinusTwoSqrt2OverPi)))));
}

// --- Reductions ----------------------------------------------------------------------------------
// -inf for n = 0; NaN never wins.
RL_INLINE float Largest(const float* x, size_t n) {
  F32x16 acc = Set1(-kInfinity);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = Max(Load(x + i), acc);
  if (i < n) acc = Max(LoadPartial(x + i, n - i, -kInfinity), acc);
  return ReduceMax(acc);
}

RL_INLINE float InverseRms(const float* x, size_t n, float eps) {
  F64x16 acc = ZeroDouble();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = AddSquareDouble(acc, Load(x + i));
  if (i < n) acc = AddSquareDouble(acc, LoadPartial(x + i, n - i));
  const auto mean = static_cast<float>(ReduceAddDouble(acc) / static_cast<double>(n));
  return 1.0f / __builtin_sqrtf(mean + eps);
}

}  // namespace
}  // namespace rullama::cpu
