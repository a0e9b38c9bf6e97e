#version 460
// Rotary embedding, after an optional RMS norm of each head: the two follow each other in a model
// and read the same few values. One workgroup for each head of each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rope.args.glsl"
#include "math.kernel"
#include "reduce.glsl"

void Store(uint i, float value) {
  if (kHalf == 0) {
    F32(p.y).v[i] = value;
  } else {
    U16(p.y).v[i] = uint16_t(FloatToHalf(value));
  }
}

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.heads;
  const bool weighted = !IsNull(p.weight);
  for (uint head = GROUP.x; head < count; head += GROUPS.x) {
    const uint first = head * p.dim;
    float factor = 1.0;
    if (kNorm != 0) {
      float sum = 0.0;
      for (uint i = gl_LocalInvocationID.x; i < p.dim; i += gl_WorkGroupSize.x) {
        const float x = F32(p.x).v[first + i];
        sum += x * x;
      }
      factor = 1.0 / sqrt(WorkgroupSum(sum) / float(p.dim) + p.eps);
    }
    const uint pos = uint(I32(p.pos).v[head / p.heads]);
    for (uint i = gl_LocalInvocationID.x; i < p.half_rot; i += gl_WorkGroupSize.x) {
      const uint j = i + p.half_rot;
      const uvec2 rate = uvec2(U32(p.rates).v[2 * i], U32(p.rates).v[2 * i + 1]);
      const vec2 turn = CosSin(Turns(pos, rate));
      float a = F32(p.x).v[first + i] * factor;
      float b = F32(p.x).v[first + j] * factor;
      if (weighted) {
        a *= F32(p.weight).v[i];
        b *= F32(p.weight).v[j];
      }
      Store(first + i, a * turn.x - b * turn.y);
      Store(first + j, a * turn.y + b * turn.x);
    }
    for (uint i = 2 * p.half_rot + gl_LocalInvocationID.x; i < p.dim; i += gl_WorkGroupSize.x) {
      float a = F32(p.x).v[first + i] * factor;
      if (weighted) a *= F32(p.weight).v[i];
      Store(first + i, a);
    }
  }
}
