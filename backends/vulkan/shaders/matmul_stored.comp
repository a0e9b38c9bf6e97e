#version 460
// y = x W with W as it is stored, rows of W being the terms of the sums: expected embeddings. Each
// invocation takes a chunk of 32 columns and up to 4 rows of x; a workgroup in z takes a part of
// the terms, and sum_parts.comp adds the parts.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul_stored.args.glsl"
#include "weights.glsl"

const uint kNt = 4;

void main() {
  const uint rows = At(p.rows, Step(p.step));
  const uint first = GROUP.y * kNt;
  const uint chunks = kBlock == 1 ? (p.n + 31) / 32 : p.blocks * kBlock / 32;
  const uint chunk = INVOCATION;
  if (first >= rows || chunk >= chunks) return;
  const uint share = (p.k + GROUPS.z - 1) / GROUPS.z;
  const uint begin = GROUP.z * share, end = min(begin + share, p.k);
  float acc[kNt * 32];
  [[unroll]] for (uint i = 0; i < kNt * 32; ++i) acc[i] = 0.0;
  for (uint term = begin; term < end; ++term) {
    float x[kNt];
    bool some = false;
    [[unroll]] for (uint t = 0; t < kNt; ++t) {
      x[t] = F32(p.x).v[min(first + t, rows - 1) * p.k + term];
      some = some || x[t] != 0.0;
    }
    if (!some) continue;  // most probabilities are 0
    const Chunk c = Decode(WeightRow(AdvanceBy(p.weight, term, p.stride), p.blocks), chunk);
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      const float w = ValueAt(c, i);
      [[unroll]] for (uint t = 0; t < kNt; ++t) acc[t * 32 + i] = fma(x[t], w, acc[t * 32 + i]);
    }
  }
  const uvec2 at = ChunkAt(chunk);
  [[unroll]] for (uint t = 0; t < kNt; ++t) {
    if (first + t >= rows) continue;
    const uint row = GROUP.z * rows + first + t;
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      const uint column = at[i >> 4] + (i & 15u);
      if (column < p.n) F32(p.y).v[row * p.n + column] = acc[t * 32 + i];
    }
  }
}
