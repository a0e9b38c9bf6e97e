#version 460
// Sorts the pairs of row and expert by expert and cuts them into tiles of kTile of one expert, for
// matmul.comp and matmul_coop.comp. One workgroup. The table: tiles there are, tiles there is room
// for, the expert of each tile, then kTile pairs of each, -1 where there are fewer. Pairs keep
// their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "moe_sort.args.glsl"

const uint kMaxExperts = 1024;
shared uint shared_count[kMaxExperts];
shared uint shared_first[kMaxExperts];  // tile
const uint kQuads = 256;
shared ivec4 shared_experts[kQuads];  // of some pairs; -1 beyond the end

// Brings the experts of pairs from `first` on to all invocations.
void LoadPairs(uint first, uint pairs) {
  barrier();
  for (uint i = gl_LocalInvocationIndex; i < kQuads; i += gl_WorkGroupSize.x) {
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint pair = first + 4 * i + j;
      shared_experts[i][j] = pair < pairs ? I32(p.experts).v[pair] : -1;
    }
  }
  barrier();
}

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
  for (uint first_expert = 0; first_expert < p.count; first_expert += gl_WorkGroupSize.x) {
    const uint e = first_expert + me;
    const bool used = e < p.count && shared_count[e] > 0;
    const uint places = used ? 2 + p.tiles + shared_first[e] * kTile : 0;
    uint at = 0;
    for (uint first = 0; first < pairs; first += 4 * kQuads) {
      LoadPairs(first, pairs);
      const uint quads = min(kQuads, (pairs - first + 3) / 4);
      for (uint i = 0; used && i < quads; ++i) {
        const ivec4 experts = shared_experts[i];
        [[unroll]] for (uint j = 0; j < 4; ++j) {
          if (experts[j] == int(e)) I32(p.table).v[places + at++] = int(first + 4 * i + j);
        }
      }
    }
    for (; at % kTile != 0; ++at) I32(p.table).v[places + at] = -1;
  }
}
