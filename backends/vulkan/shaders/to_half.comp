#version 460
// Rows of f32 as f16 times a power of two of their own, so that the largest value of a row fits f16
// and the smallest lose little. One workgroup for each row; the factors follow the rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "to_half.args.glsl"
#include "reduce.glsl"

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    const uint first = row * p.columns;
    float most = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
      most = max(most, abs(F32(p.x).v[first + i]));
    }
    most = WorkgroupMax(most);
    // The exponent of the largest value goes to 2^8: far from both ends of f16.
    const int exponent = clamp(int(floatBitsToUint(most) >> 23) - 127 - 8, -100, 100);
    const float down = uintBitsToFloat(uint(127 - exponent) << 23);
    for (uint i = gl_LocalInvocationID.x * 2; i < p.columns; i += gl_WorkGroupSize.x * 2) {
      const vec2 pair = vec2(F32(p.x).v[first + i], F32(p.x).v[first + i + 1]) * down;
      U32(p.y).v[(first + i) / 2] = packHalf2x16(pair);
    }
    if (gl_LocalInvocationID.x == 0) {
      F32(p.factors).v[row] = uintBitsToFloat(uint(127 + exponent) << 23);
    }
  }
}
