#version 460
// Rows of f32 as f16 times a power of two of their own, so that the largest value of a row fits f16
// and the smallest lose little. With two parts a value is the sum of two f16 numbers, which lose
// 2^-21 of it. One workgroup for each row; the factors follow the rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "to_half.args.glsl"
#include "reduce.glsl"
#include "high_low.glsl"

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    const uint first = row * p.columns;
    float most = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
      most = max(most, abs(F32(p.x).v[first + i]));
    }
    most = WorkgroupMax(most);
    const float unit = UnitOf(most), down = Inverse(unit);
    const uint to = row * p.padded * kParts;
    for (uint i = gl_LocalInvocationID.x * 2; i < p.padded; i += gl_WorkGroupSize.x * 2) {
      vec2 pair = vec2(0);
      if (i < p.columns) pair = vec2(F32(p.x).v[first + i], F32(p.x).v[first + i + 1]) * down;
      if (kParts == 1) {
        U32(p.y).v[(to + i) / 2] = packHalf2x16(pair);
        continue;
      }
      const uvec2 parts = HighLow(pair);
      U32(p.y).v[(to + i) / 2] = parts.x;
      U32(p.y).v[(to + p.padded + i) / 2] = parts.y;
    }
    if (gl_LocalInvocationID.x == 0) {
      F32(p.factors).v[row] = unit;
    }
  }
}
