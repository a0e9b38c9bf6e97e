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

void main() {
  gated = !IsNull(p.up);
  bounded = !IsNull(p.range);
  if (bounded) range = vec2(F32(p.range).v[0], F32(p.range).v[1]);
  FOR_MY_ROWS(row, At(p.rows, Step(p.step))) {
    float most = 0.0;
    FOR_MINE(pair, p.columns / 2) {
      const vec2 x = abs(PairAt(row, pair));
      most = max(most, max(x.x, x.y));
    }
    most = RowMax(most);
    const float unit = UnitOf(most), down = Inverse(unit);
    const uint to = row * p.padded / 2 * kParts;
    FOR_MINE(pair, p.padded / 2) {
      const vec2 x = pair < p.columns / 2 ? PairAt(row, pair) * down : vec2(0);
      if (kParts == 1) {
        U32(p.y).v[to + pair] = packHalf2x16(x);
        continue;
      }
      const uvec2 parts = HighLow(x);
      U32(p.y).v[to + pair] = parts.x;
      U32(p.y).v[to + p.padded / 2 + pair] = parts.y;
    }
    if (Lane() == 0) F32(p.factors).v[row] = unit;
  }
}
