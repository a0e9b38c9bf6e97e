#version 460
// Rows of f32 as f16 times a power of two of their own, so that the largest value of a row fits f16
// and the smallest lose little. With two parts a value is the sum of two f16 numbers, which lose
// 2^-21 of it. Rows are first normed (Prologue in kernels.def), or gated and clamped if there are
// gates and a range. One workgroup or subgroup for each row; the factors follow the rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "to_half.args.glsl"
#include "math.kernel"
#include "row_lanes.kernel"
#include "high_low.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) BUFFER Pairs { vec2 v[]; };

const bool kHasNorms = kNorms != 0;
bool gated, bounded;
vec2 range;

// The norms of the current row: the residual norm if there is one, and the second norm.
uvec2 residual, weight, sum, norm_weight;
bool adds;    // whether there is a residual
bool normed;  // whether there is a second norm
float eps, norm_eps, scale;
float factor;       // of x in the residual norm
float norm_factor;  // of the second norm

// Stages of the values of a row: as given, after the residual norm, after the second norm.
const uint kGiven = 0, kSummed = 1, kNormed = 2;

vec2 PairOf(uvec2 values, uint at, float otherwise) {
  return IsNull(values) ? vec2(otherwise) : F32x2(values).v[at];
}

// A pair, of which `x` is given, after the residual norm.
vec2 SumOf(uint at, uint pair, vec2 x) {
  return (F32x2(residual).v[at] + x * factor * PairOf(weight, pair, 1.0)) * scale;
}

vec2 NormOf(uint pair, vec2 x) { return x * norm_factor * PairOf(norm_weight, pair, 1.0); }

// Pair `pair` of a row at a stage, from memory. A sum that is stored is read, not computed again.
vec2 PairAt(uint row, uint pair, uint stage) {
  const uint at = row * (p.columns / 2) + pair;
  if (kHasNorms) {
    vec2 x = adds && stage != kGiven ? Pairs(sum).v[at] : F32x2(p.x).v[at];
    if (normed && stage == kNormed) x = NormOf(pair, x);
    return x;
  }
  vec2 x = F32x2(p.x).v[at];
  if (gated) x = vec2(GeluTanh(x.x), GeluTanh(x.y)) * F32x2(p.up).v[at];
  return bounded ? vec2(Clamped(x.x, range.x, range.y), Clamped(x.y, range.x, range.y)) : x;
}

// Pairs of a row that an invocation keeps in registers between the passes over the row: all of
// them in rows of up to 4,096 columns of a workgroup of 256. Others are computed again.
const uint kKept = 8;
vec2 kept[kKept];
uint FirstAgain() { return LANE + kKept * LANES; }

// The factor of a norm of the row at this stage.
float FactorOf(uint row, uint stage, float epsilon) {
  float squares = 0.0;
  [[unroll]] for (uint t = 0; t < kKept; ++t) squares += dot(kept[t], kept[t]);
  for (uint pair = FirstAgain(); pair < p.columns / 2; pair += LANES) {
    const vec2 x = PairAt(row, pair, stage);
    squares += dot(x, x);
  }
  return 1.0 / sqrt(RowSum(squares) / float(p.columns) + epsilon);
}

void LoadNorms() {
  const Prologue r = PrologueAt(p.prologue).v;
  residual = r.residual;
  weight = r.weight;
  sum = r.sum;
  norm_weight = r.norm_weight;
  eps = r.eps;
  norm_eps = r.norm_eps;
  adds = !IsNull(r.residual);
  normed = r.norm_eps >= 0.0;
  scale = IsNull(r.scale) ? 1.0 : F32(r.scale).v[0];
}

// Applies the norms to what is kept of the row, and stores the sums.
void NormRow(uint row) {
  const uint pairs = p.columns / 2, first = row * pairs;
  if (adds) {
    factor = FactorOf(row, kGiven, eps);
    [[unroll]] for (uint t = 0; t < kKept; ++t) {
      const uint pair = LANE + t * LANES;
      if (pair >= pairs) continue;
      kept[t] = SumOf(first + pair, pair, kept[t]);
      Pairs(sum).v[first + pair] = kept[t];
    }
    for (uint pair = FirstAgain(); pair < pairs; pair += LANES) {
      Pairs(sum).v[first + pair] = SumOf(first + pair, pair, F32x2(p.x).v[first + pair]);
    }
  }
  if (normed) {
    norm_factor = FactorOf(row, kSummed, norm_eps);
    [[unroll]] for (uint t = 0; t < kKept; ++t) {
      const uint pair = LANE + t * LANES;
      if (pair < pairs) kept[t] = NormOf(pair, kept[t]);
    }
  }
}

void PutWhole(uint row, uint pair, vec2 x) {
  if (kHasNorms && !IsNull(p.whole) && pair < p.columns / 2) {
    Pairs(p.whole).v[row * (p.columns / 2) + pair] = x;
  }
}

// Stores pair `pair` of the row whose f16 numbers begin at word `to`.
void PutPair(uint to, uint pair, vec2 x) {
  if (kParts == 1) {
    U32(p.y).v[to + pair] = packHalf2x16(x);
    return;
  }
  const uvec2 parts = HighLow(x);
  U32(p.y).v[to + pair] = parts.x;
  U32(p.y).v[to + p.padded / 2 + pair] = parts.y;
}

// Pair `pair` of a row at a stage, 0 beyond its columns.
vec2 PairOrZero(uint row, uint pair, uint stage) {
  return pair < p.columns / 2 ? PairAt(row, pair, stage) : vec2(0);
}

void main() {
  gated = !IsNull(p.up);
  bounded = !IsNull(p.range);
  if (bounded) range = vec2(F32(p.range).v[0], F32(p.range).v[1]);
  if (kHasNorms) LoadNorms();
  FOR_MY_ROWS(row, At(p.rows, Step(p.step))) {
    [[unroll]] for (uint t = 0; t < kKept; ++t) {
      kept[t] = PairOrZero(row, LANE + t * LANES, kGiven);
    }
    if (kHasNorms) NormRow(row);
    vec2 most = vec2(0);
    [[unroll]] for (uint t = 0; t < kKept; ++t) most = max(most, abs(kept[t]));
    for (uint pair = FirstAgain(); pair < p.columns / 2; pair += LANES) {
      most = max(most, abs(PairAt(row, pair, kNormed)));
    }
    const float unit = UnitOf(RowMax(max(most.x, most.y))), down = Inverse(unit);
    const uint to = row * p.padded / 2 * kParts;
    [[unroll]] for (uint t = 0; t < kKept; ++t) {
      const uint pair = LANE + t * LANES;
      PutWhole(row, pair, kept[t]);
      if (pair < p.padded / 2) PutPair(to, pair, kept[t] * down);
    }
    for (uint pair = FirstAgain(); pair < p.padded / 2; pair += LANES) {
      const vec2 x = PairOrZero(row, pair, kNormed);
      PutWhole(row, pair, x);
      PutPair(to, pair, x * down);
    }
    if (LANE == 0) F32(p.factors).v[row] = unit;
  }
}
