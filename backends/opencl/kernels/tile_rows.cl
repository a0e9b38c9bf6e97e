// The rows of a tile of matmul_coop.cl.

// Finds the rows of x that this tile takes, and the results they belong to: -1 beyond the end.
// False if there are none. Tiles of experts come from moe_sort: how many, the expert of each,
// and the pairs of each.
bool FindRows(uint tile, uint rows, __global const uint* table, uint used, uint expert_rows,
              __local int* row_of, __local int* pair_of, uint* first_weight_row) {
  *first_weight_row = 0;
#if kMode != kDense
  if (tile >= table[0]) return false;
  const uint tiles = table[1];  // places for tiles
  *first_weight_row = table[2 + tile] * expert_rows;
  FOR_MINE(i, kTile) {
    const int pair = (int)table[2 + tiles + tile * kTile + i];
    pair_of[i] = pair;
    row_of[i] = pair < 0 ? -1 : kMode == kShared ? pair / (int)used : pair;
  }
#else
  if (tile * kTile >= rows) return false;
  FOR_MINE(i, kTile) {
    const uint row = tile * kTile + i;
    row_of[i] = pair_of[i] = row < rows ? (int)row : -1;
  }
#endif
  BARRIER();
  return true;
}
