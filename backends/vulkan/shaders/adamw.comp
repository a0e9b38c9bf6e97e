#version 460
// A step of AdamW; the gradient is set to 0.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "adamw.args.glsl"

void main() {
  const float lr = F32(p.lr).v[0], g_factor = F32(p.g_factor).v[0];
  const float m_correction = F32(p.m_correction).v[0], v_correction = F32(p.v_correction).v[0];
  for (uint i = INVOCATION; i < p.count; i += GROUPS.x * gl_WorkGroupSize.x) {
    const float g = F32(p.g).v[i] * g_factor;
    const float old = F32(p.p).v[i];
    const float m = fma(p.m_rate, g - F32(p.m).v[i], F32(p.m).v[i]);
    const float v = fma(p.v_rate, g * g - F32(p.v).v[i], F32(p.v).v[i]);
    const float change = m * m_correction / (sqrt(v * v_correction) + p.eps);
    F32(p.p).v[i] = old - lr * fma(p.weight_decay, old, change);
    F32(p.m).v[i] = m;
    F32(p.v).v[i] = v;
    F32(p.g).v[i] = 0.0;
  }
}
