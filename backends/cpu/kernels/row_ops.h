// Pointwise and row kernels in float32. exp, tanh and gelu have a relative error of at most 2e-7
// for finite inputs; NaN propagates. Internal linkage throughout, see simd_portable.h.
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

void ExpRow(const float* x, size_t n, float* out) {
  MapRow(x, n, out, [](const F32x16& v) { return Exp(v); });
}
void GeluTanhRow(const float* x, size_t n, float* out) {
  MapRow(x, n, out, [](const F32x16& v) { return GeluTanh(v); });
}
void GegluRow(const float* gate, const float* up, size_t n, float* out) {
  MapRows(gate, up, n, out, [](const F32x16& g, const F32x16& u) { return Mul(GeluTanh(g), u); });
}
void SoftcapRow(const float* x, size_t n, float cap, float* out) {
  const F32x16 caps = Set1(cap);
  MapRow(x, n, out, [&](const F32x16& v) { return Mul(caps, Tanh(Div(v, caps))); });
}

// --- Arithmetic ----------------------------------------------------------------------------------
void AddRow(const float* a, const float* b, size_t n, float* out) {
  MapRows(a, b, n, out, [](const F32x16& u, const F32x16& v) { return Add(u, v); });
}
void MulRow(const float* a, const float* b, size_t n, float* out) {
  MapRows(a, b, n, out, [](const F32x16& u, const F32x16& v) { return Mul(u, v); });
}
void AffineRow(const float* x, size_t n, float scale, float offset, float* out) {
  const F32x16 s = Set1(scale), o = Set1(offset);
  MapRow(x, n, out, [&](const F32x16& v) { return Add(Mul(v, s), o); });
}
void AxpyRow(float a, const float* x, size_t n, float* y) {
  const F32x16 factor = Set1(a);
  MapRows(x, y, n, y, [&](const F32x16& u, const F32x16& v) { return Fma(factor, u, v); });
}

// Processes 64 elements of y at a time, so that their sums stay in registers and each factor is
// loaded once per 64 elements.
void AddWeightedRows(const float* factors, const float* rows, size_t stride, size_t count, size_t n,
                     float* y) {
  size_t j = 0;
  for (; j + 64 <= n; j += 64) {
    F32x16 sum[4] = {Load(y + j), Load(y + j + 16), Load(y + j + 32), Load(y + j + 48)};
    for (size_t i = 0; i < count; ++i) {
      const F32x16 factor = Set1(factors[i]);
      const float* row = rows + i * stride + j;
      for (size_t lane = 0; lane < 4; ++lane) {
        sum[lane] = Fma(factor, Load(row + lane * 16), sum[lane]);
      }
    }
    for (size_t lane = 0; lane < 4; ++lane) Store(y + j + lane * 16, sum[lane]);
  }
  if (j == n) return;
  for (size_t i = 0; i < count; ++i) AxpyRow(factors[i], rows + i * stride + j, n - j, y + j);
}

// --- Reductions ----------------------------------------------------------------------------------
float DotRow(const float* a, const float* b, size_t n) {
  F32x16 acc = Zero();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = Fma(Load(a + i), Load(b + i), acc);
  if (i < n) acc = Fma(LoadPartial(a + i, n - i), LoadPartial(b + i, n - i), acc);
  return ReduceAdd(acc);
}

float MaxRow(const float* x, size_t n) {
  F32x16 acc = Set1(-kInfinity);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = Max(Load(x + i), acc);
  if (i < n) acc = Max(LoadPartial(x + i, n - i, -kInfinity), acc);
  return ReduceMax(acc);
}

double SumRow(const float* x, size_t n) {
  F64x16 acc = ZeroDouble();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = AddDouble(acc, Load(x + i));
  if (i < n) acc = AddDouble(acc, LoadPartial(x + i, n - i));
  return ReduceAddDouble(acc);
}

size_t ArgmaxRow(const float* x, size_t n) {
  const float largest = MaxRow(x, n);
  const F32x16 target = Set1(largest);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const uint32_t equal = EqualMask(Load(x + i), target);
    if (equal != 0) return i + static_cast<size_t>(__builtin_ctz(equal));
  }
  for (; i < n; ++i) {
    if (x[i] == largest) return i;
  }
  return 0;
}

// --- Norms, softmax, rope ------------------------------------------------------------------------
RL_INLINE float InverseRms(const float* x, size_t n, float eps) {
  F64x16 acc = ZeroDouble();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = AddSquareDouble(acc, Load(x + i));
  if (i < n) acc = AddSquareDouble(acc, LoadPartial(x + i, n - i));
  const auto mean = static_cast<float>(ReduceAddDouble(acc) / static_cast<double>(n));
  return 1.0f / __builtin_sqrtf(mean + eps);
}

void RmsNormRow(const float* x, const float* weight, size_t n, float eps, float* out) {
  const F32x16 inverse = Set1(InverseRms(x, n, eps));
  if (weight == nullptr) {
    MapRow(x, n, out, [&](const F32x16& v) { return Mul(v, inverse); });
    return;
  }
  MapRows(x, weight, n, out,
          [&](const F32x16& v, const F32x16& w) { return Mul(Mul(v, inverse), w); });
}

void RmsNormAddRow(const float* x, const float* weight, const float* residual, size_t n, float eps,
                   float* out) {
  const F32x16 inverse = Set1(InverseRms(x, n, eps));
  const F32x16 one = Set1(1.0f);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 w = weight != nullptr ? Load(weight + i) : one;
    Store(out + i, Add(Load(residual + i), Mul(Mul(Load(x + i), inverse), w)));
  }
  if (i < n) {
    const size_t left = n - i;
    const F32x16 w = weight != nullptr ? LoadPartial(weight + i, left) : one;
    const F32x16 normed = Mul(Mul(LoadPartial(x + i, left), inverse), w);
    StorePartial(out + i, left, Add(LoadPartial(residual + i, left), normed));
  }
}

void SoftmaxRow(const float* x, size_t n, float* out) {
  const float largest = MaxRow(x, n);
  if (largest == -kInfinity) {
    MapRow(x, n, out, [](const F32x16&) { return Zero(); });
    return;
  }
  const F32x16 shift = Set1(largest);
  F64x16 sum = ZeroDouble();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 e = Exp(Sub(Load(x + i), shift));
    Store(out + i, e);
    sum = AddDouble(sum, e);
  }
  if (i < n) {
    const F32x16 e = Exp(Sub(LoadPartial(x + i, n - i, -kInfinity), shift));
    StorePartial(out + i, n - i, e);
    sum = AddDouble(sum, e);
  }
  const F32x16 inverse = Set1(static_cast<float>(1.0 / ReduceAddDouble(sum)));
  MapRow(out, n, out, [&](const F32x16& v) { return Mul(v, inverse); });
}

void RopeNeoxRow(const float* x, const float* cos, const float* sin, size_t half, float* out) {
  size_t i = 0;
  for (; i < half; i += 16) {
    const size_t n = half - i < 16 ? half - i : 16;
    const F32x16 a = LoadPartial(x + i, n), b = LoadPartial(x + half + i, n);
    const F32x16 c = LoadPartial(cos + i, n), s = LoadPartial(sin + i, n);
    StorePartial(out + i, n, Sub(Mul(a, c), Mul(b, s)));
    StorePartial(out + half + i, n, Add(Mul(a, s), Mul(b, c)));
  }
}

// --- Half precision ------------------------------------------------------------------------------
void FloatRowToHalf(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) StoreHalf(out + i, Load(x + i));
  for (; i < n; ++i) out[i] = FloatToHalfBits(x[i]);
}
void HalfRowToFloat(const uint16_t* x, size_t n, float* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, LoadHalf(x + i));
  for (; i < n; ++i) out[i] = HalfBitsToFloat(x[i]);
}

}  // namespace
}  // namespace rullama::cpu
