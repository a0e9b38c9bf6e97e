// Sorts the pairs of row and expert by expert and cuts them into tiles of kTile of one expert, for
// matmul.cl and matmul_coop.cl. One work-group. The table: tiles there are, tiles there is room
// for, the expert of each tile, then kTile pairs of each, -1 where there are fewer. Pairs keep
// their order.
#include "common.cl"
#include "moe_sort.args"

// There are at most so many experts, and so many work-items.
#define kMaxCounters 1024

KERNEL(moe_sort) {
  __local uint shared_count[kMaxCounters];  // by part of the pairs and expert
  __local uint shared_total[kMaxCounters];  // by expert: pairs
  __local uint shared_first[kMaxCounters];  // by expert: tile
  const uint pairs = ROWS_OF(rows) * push.used;
  __global const int* experts = AT(int, experts);
  __global uint* table = AT(uint, table);
  // The pairs are cut into parts. Pairs of one expert in one part are placed by one work-item, so
  // that they keep their order.
  const uint parts = max((uint)THREADS / push.count, 1u);
  const uint counters = parts * push.count;
  const uint part_pairs = (pairs + parts - 1) / parts;
  FOR_MINE(i, counters) shared_count[i] = 0;
  BARRIER();
  FOR_MINE(pair, pairs) {
    const int e = experts[pair];
    if (e >= 0 && e < (int)push.count) {
      atomic_inc(&shared_count[pair / part_pairs * push.count + e]);
    } else {
      FAIL();
    }
  }
  BARRIER();
  // Turns the counts of an expert into the places where its parts begin.
  FOR_MINE(e, push.count) {
    uint total = 0;
    for (uint i = e; i < counters; i += push.count) {
      const uint count = shared_count[i];
      shared_count[i] = total;
      total += count;
    }
    shared_total[e] = total;
  }
  BARRIER();
  if (ME == 0) {
    uint tile = 0;
    for (uint e = 0; e < push.count; ++e) {
      shared_first[e] = tile;
      tile += (shared_total[e] + kTile - 1) / kTile;
    }
    table[0] = tile;
    table[1] = push.tiles;
  }
  BARRIER();
  FOR_MINE(i, counters) {
    const uint e = i % push.count;
    const uint part = i / push.count;
    __global int* places = AT(int, table) + 2 + push.tiles + shared_first[e] * kTile;
    uint at = shared_count[i];
    const uint end = min((part + 1) * part_pairs, pairs);
    for (uint pair = part * part_pairs; pair < end && at < shared_total[e]; ++pair) {
      if (experts[pair] == (int)e) places[at++] = (int)pair;
    }
    if (part + 1 < parts) continue;
    for (; at % kTile != 0; ++at) places[at] = -1;
    for (uint n = 0; n < at; n += kTile) table[2 + shared_first[e] + n / kTile] = e;
  }
}
