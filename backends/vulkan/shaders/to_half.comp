#version 460
// Rows of f32, gated and clamped first if there are gates and a range, as f16 times a power of two
// of their own, so that the largest value of a row fits f16 and the smallest lose little. With two
// parts a value is the sum of two f16 numbers, which lose 2^-21 of it. One workgroup or subgroup
// for each row; the factors follow the rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "to_half.args.glsl"
#include "math.kernel"
#include "row_lanes.glsl"
#include "high_low.glsl"

bool gated, bounded;
vec2 range;

vec2 PairAt(uint row, uint pair) {
  const uint at = row * (p.columns / 2) + pair;
  vec2 x = F32x2(p.x).v[at];
  if (gated) x = vec2(GeluTanh(x.x), GeluTanh(x.y)) * F32x2(p.up).v[at];
  return bounded ? vec2(Clamped(x.x, range.x, range.y), Clamped(x.y, range.x, range.y)) : x;
}

// Pairs of a row that an invocation keeps in registers between the two passes over the row: all of
// them in rows of up to 4,096 columns of a workgroup of 256. Others are computed again.
const uint kKept = 8;

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

// Pair `pair` of a row, 0 beyond its columns.
vec2 PairOrZero(uint row, uint pair) { return pair < p.columns / 2 ? PairAt(row, pair) : vec2(0); }

void main() {
  gated = !IsNull(p.up);
  bounded = !IsNull(p.range);
  if (bounded) range = vec2(F32(p.range).v[0], F32(p.range).v[1]);
  const uint first_again = Lane() + kKept * Lanes();
  FOR_MY_ROWS(row, At(p.rows, Step(p.step))) {
    vec2 kept[kKept];
    vec2 most = vec2(0);
    [[unroll]] for (uint t = 0; t < kKept; ++t) {
      kept[t] = PairOrZero(row, Lane() + t * Lanes());
      most = max(most, abs(kept[t]));
    }
    for (uint pair = first_again; pair < p.columns / 2; pair += Lanes()) {
      most = max(most, abs(PairAt(row, pair)));
    }
    const float unit = UnitOf(RowMax(max(most.x, most.y))), down = Inverse(unit);
    const uint to = row * p.padded / 2 * kParts;
    [[unroll]] for (uint t = 0; t < kKept; ++t) {
      const uint pair = Lane() + t * Lanes();
      if (pair < p.padded / 2) PutPair(to, pair, kept[t] * down);
    }
    for (uint pair = first_again; pair < p.padded / 2; pair += Lanes()) {
      PutPair(to, pair, PairOrZero(row, pair) * down);
    }
    if (Lane() == 0) F32(p.factors).v[row] = unit;
  }
}
