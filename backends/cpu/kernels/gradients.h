// Row kernels of derivatives, and the sum of squares. Internal linkage throughout, see
// simd_portable.h.
#pragma once

#include "backends/cpu/kernels/simd.h"
#include "backends/cpu/kernels/vector_math.h"

namespace rullama::cpu {
namespace {

// s + x s (1 - s) 2 u'(x) with u = sqrt(2 / pi) (x + 0.044715 x^3) and s the logistic function of
// 2u, of which 1 - s is e^-2u s. Beyond 10 it is 1 or 0 in float32, before the cube overflows.
RL_INLINE F32x16 GeluTanhSlope(const F32x16& x) {
  constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
  constexpr float kCubic = 0.044715f;
  constexpr float kSaturated = 10.0f;
  const F32x16 one = Set1(1.0f);
  const F32x16 square = Mul(x, x);
  const F32x16 inner = Fma(Mul(square, Set1(kCubic)), x, x);
  const F32x16 e = Exp(Mul(inner, Set1(-kTwoSqrt2OverPi)));
  const F32x16 s = Div(one, Add(one, e));
  const F32x16 slope = Mul(Set1(kTwoSqrt2OverPi), Fma(square, Set1(3 * kCubic), one));
  const F32x16 inside = Fma(Mul(x, slope), Mul(s, Mul(e, s)), s);
  return SelectLess(Set1(kSaturated), x, one, SelectLess(x, Set1(-kSaturated), Zero(), inside));
}

void GeluTanhGradRow(const float* x, size_t n, float* out) {
  MapRow(x, n, out, [](const F32x16& v) { return GeluTanhSlope(v); });
}

void GegluGradRow(const float* gate, const float* up, const float* dy, size_t n, float* dgate,
                  float* dup) {
  ForEachRun(n, [&](size_t i, size_t count) {
    const F32x16 g = LoadPartial(gate + i, count), u = LoadPartial(up + i, count);
    const F32x16 d = LoadPartial(dy + i, count);
    StorePartial(dgate + i, count, Mul(Mul(d, u), GeluTanhSlope(g)));
    StorePartial(dup + i, count, Mul(d, GeluTanh(g)));
  });
}

// Where |y| is below every normal number: 0, else x. NaN in y is a number here.
RL_INLINE F32x16 WhereMass(const F32x16& y, const F32x16& x) {
  constexpr float kSmallestNormal = 0x1p-126f;
  return SelectLess(Abs(y), Set1(kSmallestNormal), Zero(), x);
}

void SoftmaxGradRow(const float* y, const float* dy, size_t n, float* dx) {
  F64x16 acc = ZeroDouble();
  ForEachRun(n, [&](size_t i, size_t count) {
    const F32x16 p = LoadPartial(y + i, count);
    acc = AddDouble(acc, WhereMass(p, Mul(p, LoadPartial(dy + i, count))));
  });
  const F32x16 sum = Set1(static_cast<float>(ReduceAddDouble(acc)));
  MapRows(y, dy, n, dx,
          [&](const F32x16& p, const F32x16& d) { return WhereMass(p, Mul(p, Sub(d, sum))); });
}

// r (g - x r^2 mean(g x)) with g = dy weight.
void RmsNormGradRow(const float* x, const float* dy, const float* weight, size_t n, float eps,
                    float* dx) {
  const F32x16 one = Set1(1.0f);
  const auto upstream = [&](size_t i, size_t count) {
    const F32x16 w = weight != nullptr ? LoadPartial(weight + i, count) : one;
    return Mul(LoadPartial(dy + i, count), w);
  };
  F64x16 products = ZeroDouble();
  ForEachRun(n, [&](size_t i, size_t count) {
    products = AddDouble(products, Mul(upstream(i, count), LoadPartial(x + i, count)));
  });
  const float r = InverseRms(x, n, eps);
  const auto mean = static_cast<float>(ReduceAddDouble(products) / static_cast<double>(n));
  const F32x16 scale = Set1(r), share = Set1(r * r * mean);
  ForEachRun(n, [&](size_t i, size_t count) {
    const F32x16 along = Mul(LoadPartial(x + i, count), share);
    StorePartial(dx + i, count, Mul(scale, Sub(upstream(i, count), along)));
  });
}

double SumSquaresRow(const float* x, size_t n) {
  F64x16 acc = ZeroDouble();
  ForEachRun(
      n, [&](size_t i, size_t count) { acc = AddSquareDouble(acc, LoadPartial(x + i, count)); });
  return ReduceAddDouble(acc);
}

}  // namespace
}  // namespace rullama::cpu
