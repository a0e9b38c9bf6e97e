#version 460
// y = the sum of `parts` tensors that follow each other, in order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sum_parts.args.glsl"

void main() {
  const uint total = At(p.rows, Step(p.step)) * p.n;
  for (uint i = INVOCATION; i < total; i += GROUPS.x * gl_WorkGroupSize.x) {
    float sum = 0.0;
    for (uint part = 0; part < p.parts; ++part) sum += F32(p.x).v[part * total + i];
    F32(p.y).v[i] = sum;
  }
}
