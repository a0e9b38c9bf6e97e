// Products of f32 matrices of any layout. A work-group computes a tile of 32 x 32 results, in
// blocks of 4 x 4; terms come through local memory, 16 at a time, and are added in their order. The
// work-groups of a part share the terms with the others and have results of their own, y[part].
#include "common.cl"
#include "matmul_plain.args"

#define kTile 32
#define kDepth 16
#define kSide 4                             // of a block
#define kBlocks 8                           // along a side of the tile
#define kOwn (kBlocks * kBlocks / THREADS)  // blocks of a work-item

// Neighbours in memory go to neighbouring work-items: along the terms if their stride is 1.
#define TERM_OF(element, stride) ((stride) == 1 ? (element) % kDepth : (element) / kTile)
#define PLACE_OF(element, stride) ((stride) == 1 ? (element) / kDepth : (element) % kTile)

KERNEL(matmul_plain) {
  __local float shared_a[kDepth * kTile];
  __local float shared_b[kDepth * kTile];
  const uint rows = ROWS_OF(rows), terms = ROWS_OF(terms);
  const uint across = (push.columns + kTile - 1) / kTile;
  const uint tiles = (rows + kTile - 1) / kTile * across;
  const uint part = (uint)get_group_id(1), parts = (uint)get_num_groups(1);
  const uint share = ((terms + kDepth - 1) / kDepth + parts - 1) / parts * kDepth;
  const uint begin = min(part * share, terms), end = min(begin + share, terms);
  for (uint tile = GROUP; tile < tiles; tile += GROUPS) {
    const uint first_row = tile / across * kTile, first_column = tile % across * kTile;
    float sums[kOwn * kSide * kSide];
    for (uint i = 0; i < kOwn * kSide * kSide; ++i) sums[i] = 0.0f;
    for (uint first = begin; first < end; first += kDepth) {
      BARRIER();
      FOR_MINE(i, kDepth * kTile) {
        const uint a_term = TERM_OF(i, push.a_term), a_row = PLACE_OF(i, push.a_term);
        const bool in_a = first + a_term < end && first_row + a_row < rows;
        shared_a[a_term * kTile + a_row] =
            in_a ? AT(float, a)[(size_t)(first_row + a_row) * push.a_row +
                                (size_t)(first + a_term) * push.a_term]
                 : 0.0f;
        const uint b_term = TERM_OF(i, push.b_term), b_column = PLACE_OF(i, push.b_term);
        const bool in_b = first + b_term < end && first_column + b_column < push.columns;
        shared_b[b_term * kTile + b_column] =
            in_b ? AT(float, b)[(size_t)(first + b_term) * push.b_term +
                                (size_t)(first_column + b_column) * push.b_column]
                 : 0.0f;
      }
      BARRIER();
      for (uint own = 0; own < kOwn; ++own) {
        const uint block = ME + own * THREADS;
        const uint row = block / kBlocks * kSide, column = block % kBlocks * kSide;
        for (uint term = 0; term < kDepth; ++term) {
          UNROLL for (uint i = 0; i < kSide; ++i) {
            const float a = shared_a[term * kTile + row + i];
            UNROLL for (uint j = 0; j < kSide; ++j) {
              const uint sum = (own * kSide + i) * kSide + j;
              sums[sum] = fma(a, shared_b[term * kTile + column + j], sums[sum]);
            }
          }
        }
      }
    }
    for (uint own = 0; own < kOwn; ++own) {
      const uint block = ME + own * THREADS;
      for (uint i = 0; i < kSide; ++i) {
        for (uint j = 0; j < kSide; ++j) {
          const uint row = first_row + block / kBlocks * kSide + i;
          const uint column = first_column + block % kBlocks * kSide + j;
          if (row >= rows || column >= push.columns) continue;
          __global float* y = AT(float, y) + ((size_t)part * rows + row) * push.columns + column;
          const float sum = push.factor * sums[(own * kSide + i) * kSide + j];
          *y = kAdds ? *y + sum : sum;
        }
      }
    }
  }
}
