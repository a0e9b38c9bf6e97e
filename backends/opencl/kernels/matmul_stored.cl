// y = x W with W as it is stored, rows of W being the terms of the sums: expected embeddings and
// derivatives. Each work-item takes a chunk of 32 columns and up to 4 rows of x; a work-group in z
// takes a part of the terms, and sum_parts adds the parts. Of experts, the 4 rows are pairs of a
// tile of moe_sort.cl.
#include "common.cl"
#include "matmul_stored.args"
#include "weights.cl"

#define kRows 4
#define kTile 64u  // pairs of an expert

// Finds the rows of x and of y that this work-group takes, -1 where there is none, and the row of
// the weights that is the first term. False if there are none. `table`: of moe_sort.cl.
INLINED bool FindRows(uint rows, __global const uint* table, uint used, uint expert_rows,
                      int* x_row, int* y_row, uint* first_term) {
  const uint first = (uint)get_group_id(1) * kRows;
  *first_term = 0;
#if kMode == kDense
  UNROLL for (uint t = 0; t < kRows; ++t) {
    x_row[t] = first + t < rows ? (int)(first + t) : -1;
    y_row[t] = first + t < rows ? (int)((uint)get_group_id(2) * rows + first + t) : -1;
  }
  return first < rows;
#else
  const uint tile = first / kTile;
  if (tile >= table[0]) return false;
  const uint tiles = table[1];  // places for tiles
  *first_term = table[2 + tile] * expert_rows;
  UNROLL for (uint t = 0; t < kRows; ++t) {
    const int pair = (int)table[2 + tiles + first + t];
    x_row[t] = pair < 0 || kMode == kPairs ? pair : pair / (int)used;
    y_row[t] = pair;
  }
  return y_row[0] >= 0;
#endif
}

KERNEL(matmul_stored) {
  const uint chunk = GROUP * THREADS + ME;
  int x_row[kRows], y_row[kRows];
  uint first_term;
  if (!FindRows(ROWS_OF(rows), AT(uint, extra), push.used, push.expert_rows, x_row, y_row,
                &first_term)) {
    return;
  }
  if (chunk >= CHUNKS(push.n, push.blocks)) return;
  const uint parts = (uint)get_num_groups(2), part = (uint)get_group_id(2);
  const uint share = (push.k + parts - 1) / parts;
  const uint begin = part * share, end = min(begin + share, push.k);
  Sixteen sums[kRows][2];
  UNROLL for (uint t = 0; t < kRows; ++t) sums[t][0].vector = sums[t][1].vector = 0.0f;
  for (uint term = begin; term < end; ++term) {
    float x[kRows];
    bool some = false;
    UNROLL for (uint t = 0; t < kRows; ++t) {
      x[t] = AT(float, x)[(size_t)max(x_row[t], 0) * push.k + term];
      some = some || x[t] != 0.0f;
    }
    if (!some) continue;  // most probabilities are 0
    const WeightRow row = {AT(const uchar, weight) + (size_t)(first_term + term) * push.stride,
                           push.blocks};
    const Chunk c = Decode(row, chunk);
    UNROLL for (uint run = 0; run < 2; ++run) {
      const Sixteen w = ValuesOf(&c, run);
      UNROLL for (uint t = 0; t < kRows; ++t) {
        sums[t][run].vector = fma((float16)x[t], w.vector, sums[t][run].vector);
      }
    }
  }
  const uint2 at = ChunkAt(chunk);
  UNROLL for (uint t = 0; t < kRows; ++t) {
    if (y_row[t] < 0) continue;
    __global float* y = AT(float, y) + (size_t)y_row[t] * push.n;
    UNROLL for (uint i = 0; i < 32; ++i) {
      const uint column = RUN_AT(at, i >> 4) + (i & 15u);
      if (column < push.n) y[column] = sums[t][i >> 4].one[i & 15];
    }
  }
}
