#version 460
// A sum for each workgroup: of the squares of its elements, or of its elements.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sum_squares.args.glsl"
#include "reduce.glsl"

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.inner;
  float sum = 0.0;
  for (uint i = INVOCATION; i < count; i += GROUPS.x * gl_WorkGroupSize.x) {
    const float x = F32(p.x).v[i];
    sum += kSquare != 0 ? x * x : x;
  }
  sum = WorkgroupSum(sum);
  if (gl_LocalInvocationID.x == 0) F32(p.y).v[GROUP.x] = sum;
}
