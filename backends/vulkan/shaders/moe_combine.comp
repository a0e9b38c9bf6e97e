#version 460
// y[t] = sum over the experts j of a row of weight[t, j] * factor[expert] * x[t, j].
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "moe_combine.args.glsl"

void main() {
  const uint total = At(p.rows, Step(p.step)) * p.n;
  for (uint i = INVOCATION; i < total; i += GROUPS.x * gl_WorkGroupSize.x) {
    const uint row = i / p.n, column = i % p.n;
    float sum = 0.0;
    for (uint j = 0; j < p.used; ++j) {
      const uint pair = row * p.used + j;
      const int expert = I32(p.experts).v[pair];
      if (expert < 0 || expert >= int(p.count)) continue;
      float weight = F32(p.weights).v[pair];
      if (!IsNull(p.factor)) weight *= F32(p.factor).v[expert];
      sum = fma(weight, F32(p.x).v[pair * p.n + column], sum);
    }
    F32(p.y).v[i] = sum;
  }
}
