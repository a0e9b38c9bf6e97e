#version 460
// Joins the parts of attention.comp: y = sum w_i acc_i / sum w_i sum_i with w_i = exp(max_i - max).
// One workgroup for each head of each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
  uvec2 step, x, y;
  Extent rows;
  uint heads, dim, parts;
} p;

void main() {
  const uint all = At(p.rows, Step(p.step)) * p.heads;
  const uint index = gl_WorkGroupID.x;
  if (index >= all) return;
  F32 stats = F32(AdvanceBy(p.x, p.parts * all, p.dim * 4));
  float most = -kInfinity;
  for (uint i = 0; i < p.parts; ++i) most = max(most, stats.v[i * all + index]);
  float sum = 0.0;
  for (uint i = 0; i < p.parts; ++i) {
    const float m = stats.v[i * all + index];
    if (m > -kInfinity) sum += Exp(m - most) * stats.v[(p.parts + i) * all + index];
  }
  for (uint d = gl_LocalInvocationIndex; d < p.dim; d += gl_WorkGroupSize.x) {
    float y = 0.0;
    for (uint i = 0; i < p.parts; ++i) {
      const float m = stats.v[i * all + index];
      if (m == -kInfinity) continue;
      y += Exp(m - most) * F32(AdvanceBy(p.x, i * all + index, p.dim * 4)).v[d];
    }
    F32(AdvanceBy(p.y, index, p.dim * 4)).v[d] = sum > 0.0 ? y / sum : 0.0;
  }
}
