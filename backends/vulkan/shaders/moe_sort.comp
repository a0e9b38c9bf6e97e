#version 460
// Sorts the pairs of row and expert by expert and cuts them into tiles of kTile of one expert, for
// matmul.comp and matmul_coop.comp. One workgroup. The table: tiles there are, tiles there is room
// for, the expert of each tile, then kTile pairs of each, -1 where there are fewer. Pairs keep
// their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "moe_sort.args.glsl"

// There are at most so many experts, and so many invocations.
const uint kMaxCounters = 1024;
shared uint shared_count[kMaxCounters];  // by part of the pairs and expert
shared uint shared_total[kMaxCounters];  // by expert: pairs
shared uint shared_first[kMaxCounters];  // by expert: tile

void main() {
  const uint pairs = At(p.rows, Step(p.step)) * p.used;
  const uint me = gl_LocalInvocationIndex;
  // The pairs are cut into parts. Pairs of one expert in one part are placed by one invocation, so
  // that they keep their order.
  const uint parts = max(gl_WorkGroupSize.x / p.count, 1);
  const uint counters = parts * p.count;
  const uint part_pairs = (pairs + parts - 1) / parts;
  for (uint i = me; i < counters; i += gl_WorkGroupSize.x) shared_count[i] = 0;
  barrier();
  for (uint pair = me; pair < pairs; pair += gl_WorkGroupSize.x) {
    const int e = I32(p.experts).v[pair];
    if (e >= 0 && e < int(p.count)) {
      atomicAdd(shared_count[pair / part_pairs * p.count + e], 1);
    } else {
      Step(p.step).failed_op = p.op;
    }
  }
  barrier();
  // Turns the counts of an expert into the places where its parts begin.
  for (uint e = me; e < p.count; e += gl_WorkGroupSize.x) {
    uint total = 0;
    for (uint i = e; i < counters; i += p.count) {
      const uint count = shared_count[i];
      shared_count[i] = total;
      total += count;
    }
    shared_total[e] = total;
  }
  barrier();
  if (me == 0) {
    uint tile = 0;
    for (uint e = 0; e < p.count; ++e) {
      shared_first[e] = tile;
      tile += (shared_total[e] + kTile - 1) / kTile;
    }
    U32(p.table).v[0] = tile;
    U32(p.table).v[1] = p.tiles;
  }
  barrier();
  for (uint i = me; i < counters; i += gl_WorkGroupSize.x) {
    const uint e = i % p.count;
    const uint part = i / p.count;
    const uint places = 2 + p.tiles + shared_first[e] * kTile;
    uint at = shared_count[i];
    const uint end = min((part + 1) * part_pairs, pairs);
    for (uint first = part * part_pairs; first < end && at < shared_total[e]; first += 4) {
      int experts[4];
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        experts[j] = first + j < end ? I32(p.experts).v[first + j] : -1;
      }
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (experts[j] == int(e)) I32(p.table).v[places + at++] = int(first + j);
      }
    }
    if (part + 1 < parts) continue;
    for (; at % kTile != 0; ++at) I32(p.table).v[places + at] = -1;
    for (uint n = 0; n < at; n += kTile) U32(p.table).v[2 + shared_first[e] + n / kTile] = e;
  }
}
