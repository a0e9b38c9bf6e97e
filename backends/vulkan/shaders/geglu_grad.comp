#version 460
// One element at a time: the derivatives of gelu(gate) * up by both.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "geglu_grad.args.glsl"
#include "math.glsl"

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.inner;
  for (uint i = INVOCATION; i < count; i += GROUPS.x * gl_WorkGroupSize.x) {
    const float gate = F32(p.gate).v[i];
    const float dy = F32(p.dy).v[i];
    F32(p.dgate).v[i] = dy * F32(p.up).v[i] * GeluTanhGrad(gate);
    F32(p.dup).v[i] = dy * GeluTanh(gate);
  }
}
