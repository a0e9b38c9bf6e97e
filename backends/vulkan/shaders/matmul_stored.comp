#version 460
// y = x W with W as it is stored, rows of W being the terms of the sums: expected embeddings and
// derivatives. Each invocation takes a chunk of 32 columns and up to 4 rows of x; a workgroup in z
// takes a part of the terms, and sum_parts adds the parts. Of experts, the 4 rows are pairs of a
// tile of moe_sort.comp.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul_stored.args.glsl"
#include "weights.glsl"

const uint kNt = 4;
const uint kTile = 64;  // pairs of an expert

// The rows of x and of y that this workgroup takes; -1: none.
int x_row[kNt];
int y_row[kNt];

// Finds them, and the row of the weights that is the first term. False if there are none.
bool FindRows(out uint first_term) {
  const uint rows = At(p.rows, Step(p.step));
  const uint first = GROUP.y * kNt;
  first_term = 0;
  if (kMode == kDense) {
    [[unroll]] for (uint t = 0; t < kNt; ++t) {
      x_row[t] = first + t < rows ? int(first + t) : -1;
      y_row[t] = first + t < rows ? int(GROUP.z * rows + first + t) : -1;
    }
    return first < rows;
  }
  const uint tile = first / kTile;
  if (tile >= U32(p.extra).v[0]) return false;
  const uint tiles = U32(p.extra).v[1];  // places for tiles
  first_term = U32(p.extra).v[2 + tile] * p.expert_rows;
  [[unroll]] for (uint t = 0; t < kNt; ++t) {
    const int pair = I32(p.extra).v[2 + tiles + first + t];
    x_row[t] = pair < 0 || kMode == kPairs ? pair : pair / int(p.used);
    y_row[t] = pair;
  }
  return y_row[0] >= 0;
}

void main() {
  const uint chunks = kBlock == 1 ? (p.n + 31) / 32 : p.blocks * kBlock / 32;
  const uint chunk = INVOCATION;
  uint first_term;
  if (!FindRows(first_term) || chunk >= chunks) return;
  const uint share = (p.k + GROUPS.z - 1) / GROUPS.z;
  const uint begin = GROUP.z * share, end = min(begin + share, p.k);
  float acc[kNt * 32];
  [[unroll]] for (uint i = 0; i < kNt * 32; ++i) acc[i] = 0.0;
  for (uint term = begin; term < end; ++term) {
    float x[kNt];
    bool some = false;
    [[unroll]] for (uint t = 0; t < kNt; ++t) {
      x[t] = F32(p.x).v[uint(max(x_row[t], 0)) * p.k + term];
      some = some || x[t] != 0.0;
    }
    if (!some) continue;  // most probabilities are 0
    const uvec2 weights = AdvanceBy(p.weight, first_term + term, p.stride);
    const Chunk c = Decode(WeightRow(weights, p.blocks), chunk);
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      const float w = ValueAt(c, i);
      [[unroll]] for (uint t = 0; t < kNt; ++t) acc[t * 32 + i] = fma(x[t], w, acc[t * 32 + i]);
    }
  }
  const uvec2 at = ChunkAt(chunk);
  [[unroll]] for (uint t = 0; t < kNt; ++t) {
    if (y_row[t] < 0) continue;
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      const uint column = at[i >> 4] + (i & 15u);
      if (column < p.n) F32(p.y).v[uint(y_row[t]) * p.n + column] = acc[t * 32 + i];
    }
  }
}
