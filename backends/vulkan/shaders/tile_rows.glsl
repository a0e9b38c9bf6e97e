// The rows of a tile of matmul.comp and matmul_coop.comp, in shared_row and shared_pair.

// Finds the rows of x that this tile takes; false if there are none. Tiles of experts come from
// moe_sort.comp: how many, the expert of each, and the pairs of each.
bool FindRows(uint tile, out uint first_weight_row) {
  const uint rows = At(p.rows, Step(p.step));
  first_weight_row = 0;
  if (kMode != kDense) {
    if (tile >= U32(p.extra).v[0]) return false;
    const uint tiles = U32(p.extra).v[1];  // places for tiles
    first_weight_row = U32(p.extra).v[2 + tile] * p.expert_rows;
    if (gl_LocalInvocationIndex < kTile) {
      const int pair = I32(p.extra).v[2 + tiles + tile * kTile + gl_LocalInvocationIndex];
      shared_pair[gl_LocalInvocationIndex] = pair;
      shared_row[gl_LocalInvocationIndex] = pair < 0           ? -1
                                            : kMode == kShared ? pair / int(p.used)
                                                               : pair;
    }
  } else {
    if (tile * kTile >= rows) return false;
    if (gl_LocalInvocationIndex < kTile) {
      const uint row = tile * kTile + gl_LocalInvocationIndex;
      shared_row[gl_LocalInvocationIndex] = row < rows ? int(row) : -1;
      shared_pair[gl_LocalInvocationIndex] = row < rows ? int(row) : -1;
    }
  }
  barrier();
  return true;
}
