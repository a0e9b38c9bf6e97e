#version 460
// Biases on single columns. y already holds a copy of the logits. One workgroup for each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "bias_add.args.glsl"

void AddBiases(uint row) {
  for (uint i = gl_LocalInvocationIndex; i < p.count; i += gl_WorkGroupSize.x) {
    const int id = I32(p.ids).v[row * p.stride + i];
    if (p.stride != 0 && id == -1) continue;
    if (id < 0 || id >= int(p.columns)) {
      Step(p.step).failed_op = p.op;
      continue;
    }
    const uint at = row * p.columns + uint(id);
    F32(p.y).v[at] = F32(p.x).v[at] + F32(p.biases).v[row * p.stride + i];
  }
}

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) AddBiases(row);
}
