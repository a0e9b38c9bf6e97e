// Pointwise and row kernels in float32. Internal linkage throughout, see simd_portable.h.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/simd.h"
#include "backends/cpu/kernels/vector_math.h"
#include "backends/cpu/kernels/weighted_rows.h"

namespace rullama::cpu {
namespace {

void ExpRow(const float* x, size_t n, float* out) {
  MapRow(x, n, out, [](const F32x16& v) { return Exp(v); });
}
void SigmoidRow(const float* x, size_t n, float* out) {
  const F32x16 one = Set1(1.0f);
  MapRow(x, n, out, [&](const F32x16& v) { return Div(one, Add(one, Exp(Sub(Zero(), v)))); });
}
void SiluRow(const float* x, size_t n, float* out) {
  const F32x16 one = Set1(1.0f);
  MapRow(x, n, out, [&](const F32x16& v) { return Div(v, Add(one, Exp(Sub(Zero(), v)))); });
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
void ClampRow(const float* x, size_t n, float lo, float hi, float* out) {
  const F32x16 low = Set1(lo), high = Set1(hi);
  MapRow(x, n, out,
         [&](const F32x16& v) { return SelectLess(v, low, low, SelectLess(high, v, high, v)); });
}
void AxpyRow(float a, const float* x, size_t n, float* y) {
  const F32x16 factor = Set1(a);
  MapRows(x, y, n, y, [&](const F32x16& u, const F32x16& v) { return Fma(factor, u, v); });
}

// Adds to kVectors vectors of kOutputs outputs, whose sums stay in registers.
template <size_t kOutputs, size_t kVectors>
RL_INLINE void AddToColumns(const WeightedRowsArgs& args, size_t output, size_t column) {
  const float* factors = args.factors + output * args.output_stride;
  const float* row = args.rows + column;
  float* y = args.y + output * args.y_stride + column;
  F32x16 sums[kOutputs][kVectors];
  for (size_t o = 0; o < kOutputs; ++o) {
    for (size_t v = 0; v < kVectors; ++v) sums[o][v] = Load(y + o * args.y_stride + v * 16);
  }
  for (size_t i = 0; i < args.count; ++i, row += args.row_stride, factors += args.factor_stride) {
    F32x16 vectors[kVectors];
    for (size_t v = 0; v < kVectors; ++v) vectors[v] = Load(row + v * 16);
    for (size_t o = 0; o < kOutputs; ++o) {
      const F32x16 factor = Set1(factors[o * args.output_stride]);
      for (size_t v = 0; v < kVectors; ++v) sums[o][v] = Fma(factor, vectors[v], sums[o][v]);
    }
  }
  for (size_t o = 0; o < kOutputs; ++o) {
    for (size_t v = 0; v < kVectors; ++v) Store(y + o * args.y_stride + v * 16, sums[o][v]);
  }
}

template <size_t kOutputs, size_t kVectors>
void AddToOutputs(const WeightedRowsArgs& args, size_t output) {
  size_t j = 0;
  for (; j + kVectors * 16 <= args.columns; j += kVectors * 16) {
    AddToColumns<kOutputs, kVectors>(args, output, j);
  }
  for (; j + 16 <= args.columns; j += 16) AddToColumns<kOutputs, 1>(args, output, j);
  if (j == args.columns) return;
  for (size_t o = output; o < output + kOutputs; ++o) {
    for (size_t i = 0; i < args.count; ++i) {
      AxpyRow(args.factors[o * args.output_stride + i * args.factor_stride],
              args.rows + i * args.row_stride + j, args.columns - j,
              args.y + o * args.y_stride + j);
    }
  }
}

void AddWeightedRows(const WeightedRowsArgs& args) {
  constexpr size_t kOutputs = 4;
  size_t output = 0;
  for (; output + kOutputs <= args.outputs; output += kOutputs) {
    AddToOutputs<kOutputs, kWeightedVectors>(args, output);
  }
  for (; output < args.outputs; ++output) AddToOutputs<1, 4>(args, output);
}

// --- Reductions ----------------------------------------------------------------------------------
float DotRow(const float* a, const float* b, size_t n) {
  F32x16 acc = Zero();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = Fma(Load(a + i), Load(b + i), acc);
  if (i < n) acc = Fma(LoadPartial(a + i, n - i), LoadPartial(b + i, n - i), acc);
  return ReduceAdd(acc);
}

float MaxRow(const float* x, size_t n) { return Largest(x, n); }

double SumRow(const float* x, size_t n) {
  F64x16 acc = ZeroDouble();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) acc = AddDouble(acc, Load(x + i));
  if (i < n) acc = AddDouble(acc, LoadPartial(x + i, n - i));
  return ReduceAddDouble(acc);
}

size_t ArgmaxRow(const float* x, size_t n) {
  const float largest = Largest(x, n);
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
  const float largest = Largest(x, n);
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

// Signs of the transform of 16 numbers: row i is what number i adds to each result.
struct RotationOf16 {
  float signs[16][16];
};
constexpr RotationOf16 kRotationOf16 = [] {
  RotationOf16 rotation{};
  for (uint32_t i = 0; i < 16; ++i) {
    for (uint32_t j = 0; j < 16; ++j) {
      rotation.signs[i][j] = __builtin_popcount(i & j) % 2 == 0 ? 1.0f : -1.0f;
    }
  }
  return rotation;
}();

// Each run of 16 of kRuns runs, side by side: a sum waits for itself. `out` may be `x`.
template <int kRuns>
RL_INLINE void RotateSixteens(const float* x, float scale, float* out) {
  F32x16 sums[kRuns];
  for (int run = 0; run < kRuns; ++run) sums[run] = Zero();
  for (size_t i = 0; i < 16; ++i) {
    const F32x16 signs = Load(kRotationOf16.signs[i]);
    for (int run = 0; run < kRuns; ++run) {
      sums[run] = Fma(Set1(x[16 * run + static_cast<int>(i)] * scale), signs, sums[run]);
    }
  }
  for (int run = 0; run < kRuns; ++run) Store(out + 16 * run, sums[run]);
}
void RotateRow(const float* x, size_t n, float scale, float* out) {
  if (n < 16) {
    float row[16];
    Store(row, LoadPartial(x, n));
    RotateSixteens<1>(row, scale, row);
    StorePartial(out, n, Load(row));
    return;
  }
  size_t done = 0;
  for (; done + 64 <= n; done += 64) RotateSixteens<4>(x + done, scale, out + done);
  for (; done < n; done += 16) RotateSixteens<1>(x + done, scale, out + done);
  for (size_t apart = 16; apart < n; apart *= 2) {
    for (size_t i = 0; i < n; i += 16) {
      if ((i & apart) != 0) continue;
      const F32x16 a = Load(out + i), b = Load(out + i + apart);
      Store(out + i, Add(a, b));
      Store(out + i + apart, Sub(a, b));
    }
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
