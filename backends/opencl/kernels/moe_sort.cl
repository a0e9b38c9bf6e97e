// Sorts the pairs of row and expert by expert and cuts them into tiles of kTile of one expert, for
// matmul.cl and matmul_coop.cl. One work-group. The table: tiles there are, tiles there is room
// for, the expert of each tile, then kTile pairs of each, -1 where there are fewer. Pairs keep
// their order.
#include "common.cl"
#include "moe_sort.args"

#define kMaxExperts 1024

KERNEL(moe_sort) {
  __local uint shared_count[kMaxExperts];
  __local uint shared_first[kMaxExperts];  // tile
  const uint pairs = ROWS_OF(rows) * push.used;
  __global const int* experts = AT(int, experts);
  __global uint* table = AT(uint, table);
  FOR_MINE(e, push.count) shared_count[e] = 0;
  BARRIER();
  FOR_MINE(pair, pairs) {
    const int e = experts[pair];
    if (e >= 0 && e < (int)push.count) {
      atomic_inc(&shared_count[e]);
    } else {
      FAIL();
    }
  }
  BARRIER();
  if (ME == 0) {
    uint tile = 0;
    for (uint e = 0; e < push.count; ++e) {
      shared_first[e] = tile;
      for (uint n = 0; n < shared_count[e]; n += kTile) table[2 + tile++] = e;
    }
    table[0] = tile;
    table[1] = push.tiles;
  }
  BARRIER();
  // A work-item for each expert, so that its pairs keep their order.
  FOR_MINE(e, push.count) {
    if (shared_count[e] == 0) continue;
    __global int* places = AT(int, table) + 2 + push.tiles + shared_first[e] * kTile;
    uint at = 0;
    for (uint pair = 0; pair < pairs; ++pair) {
      if (experts[pair] == (int)e) places[at++] = (int)pair;
    }
    for (; at % kTile != 0; ++at) places[at] = -1;
  }
}
