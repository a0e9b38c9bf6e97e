#version 460
// Philox4x32-10 of (pos, slot, stream) or (pos, stream of the row): <rullama/sdk/philox.h>.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "random_uniform.args.glsl"

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = INVOCATION; row < count; row += GROUPS.x * gl_WorkGroupSize.x) {
    const bool of_row = IsNull(p.slot);
    const uint seed = of_row ? 3 * row : 0;
    const uint second = of_row ? U32(p.seed).v[seed + 2] : U32(p.slot).v[row];
    uvec4 counter = uvec4(U32(p.pos).v[row], second, p.stream, 0);
    uvec2 key = uvec2(U32(p.seed).v[seed], U32(p.seed).v[seed + 1]);
    for (int round = 0; round < 10; ++round) {
      uint high0, low0, high1, low1;
      umulExtended(0xD2511F53u, counter.x, high0, low0);
      umulExtended(0xCD9E8D57u, counter.z, high1, low1);
      counter = uvec4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
      key += uvec2(0x9E3779B9u, 0xBB67AE85u);
    }
    F32(p.y).v[row] = float(counter.x >> 8) * 5.9604644775390625e-8;
  }
}
