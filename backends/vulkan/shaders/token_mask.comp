#version 460
// Logits where a bit is set, -infinity elsewhere.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "token_mask.args.glsl"

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.columns;
  for (uint i = INVOCATION; i < count; i += GROUPS.x * gl_WorkGroupSize.x) {
    const uint row = i / p.columns, column = i - row * p.columns;
    const uint bits = U32(p.bits).v[row * p.words + column / 32];
    const bool allowed = (bits >> (column % 32) & 1u) != 0;
    F32(p.y).v[i] = allowed ? F32(p.x).v[i] : -kInfinity;
  }
}
