#version 460
// Sorts the pairs of row and expert by expert and cuts them into tiles of 64 of one expert, for
// matmul.comp. One workgroup. The table: tiles there are, tiles there is room for, the expert of each
// tile, then 64 pairs of each, -1 where there are fewer. Pairs keep their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

PUSH Push {
  uvec2 step, experts, table;
  Extent rows;
  uint used, count, tiles, op;
} AS_P;

const uint kTile = 64;
const uint kMaxExperts = 1024;
shared uint shared_count[kMaxExperts];
shared uint shared_first[kMaxExperts];  // tile

void main() {
  const uint pairs = At(p.rows, Step(p.step)) * p.used;
  const uint me = gl_LocalInvocationIndex;
  for (uint e = me; e < p.count; e += gl_WorkGroupSize.x) shared_count[e] = 0;
  barrier();
  for (uint pair = me; pair < pairs; pair += gl_WorkGroupSize.x) {
    const int e = I32(p.experts).v[pair];
    if (e >= 0 && e < int(p.count)) {
      atomicAdd(shared_count[e], 1);
    } else {
      Step(p.step).failed_op = p.op;
    }
  }
  barrier();
  if (me == 0) {
    uint tile = 0;
    for (uint e = 0; e < p.count; ++e) {
      shared_first[e] = tile;
      for (uint n = 0; n < shared_count[e]; n += kTile) U32(p.table).v[2 + tile++] = e;
    }
    U32(p.table).v[0] = tile;
    U32(p.table).v[1] = p.tiles;
  }
  barrier();
  // An invocation for each expert, so that its pairs keep their order.
  for (uint e = me; e < p.count; e += gl_WorkGroupSize.x) {
    if (shared_count[e] == 0) continue;
    const uint first = 2 + p.tiles + shared_first[e] * kTile;
    uint at = 0;
    for (uint pair = 0; pair < pairs; ++pair) {
      if (I32(p.experts).v[pair] == int(e)) I32(p.table).v[first + at++] = int(pair);
    }
    for (; at % kTile != 0; ++at) I32(p.table).v[first + at] = -1;
  }
}
