// y = x W with W as it is stored, rows of W being the terms of the sums: expected embeddings. Each
// work-item takes a chunk of 32 columns and up to 4 rows of x; a work-group in z takes a part of
// the terms, and sum_parts.cl adds the parts.
#include "common.cl"
#include "matmul_stored.args"
#include "weights.cl"

#define kRows 4

KERNEL(matmul_stored) {
  const uint rows = ROWS_OF(rows);
  const uint first = (uint)get_group_id(1) * kRows;
  const uint chunk = GROUP * THREADS + ME;
  if (first >= rows || chunk >= CHUNKS(push.n, push.blocks)) return;
  const uint parts = (uint)get_num_groups(2), part = (uint)get_group_id(2);
  const uint share = (push.k + parts - 1) / parts;
  const uint begin = part * share, end = min(begin + share, push.k);
  Sixteen sums[kRows][2];
  UNROLL for (uint t = 0; t < kRows; ++t) sums[t][0].vector = sums[t][1].vector = 0.0f;
  for (uint term = begin; term < end; ++term) {
    float x[kRows];
    bool some = false;
    UNROLL for (uint t = 0; t < kRows; ++t) {
      x[t] = AT(float, x)[(size_t)min(first + t, rows - 1) * push.k + term];
      some = some || x[t] != 0.0f;
    }
    if (!some) continue;  // most probabilities are 0
    const WeightRow row = {AT(const uchar, weight) + (size_t)term * push.stride, push.blocks};
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
    if (first + t >= rows) continue;
    __global float* y = AT(float, y) + (size_t)(part * rows + first + t) * push.n;
    UNROLL for (uint i = 0; i < 32; ++i) {
      const uint column = RUN_AT(at, i >> 4) + (i & 15u);
      if (column < push.n) y[column] = sums[t][i >> 4].one[i & 15];
    }
  }
}
