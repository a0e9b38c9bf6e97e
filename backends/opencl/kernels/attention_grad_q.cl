// The derivative by the queries of attention over fresh rows. A work-group takes a query row and up
// to 4 heads that share a kv head, and the keys in tiles: first a work-item has a key and its
// scores, then dimensions and sums over the keys of the tile, in their order.
#include "common.cl"
#include "attention_grad_q.args"
#include "math.kernel"
#include "fresh_keys.cl"

#define kTile 64                                // keys
#define kDims ((kDim + THREADS - 1) / THREADS)  // of a work-item

KERNEL(attention_grad_q) {
  __local float4 shared_q[kGroup * kQuads];
  __local float4 shared_dy[kGroup * kQuads];
  __local float shared_mean[kGroup];
  __local float shared_gradient[kGroup * kTile];  // of the scores
  __local uint shared_some;                       // whether the row sees a key of the tile
  const uint rows = ROWS_OF(rows), keys = ROWS_OF(keys);
  const uint groups = kHeads / kGroup;
  for (uint item = GROUP; item < rows * groups; item += GROUPS) {
    const uint row = item / groups, first_head = item % groups * kGroup;
    const uint kv_head = first_head / (kHeads / kKvHeads);
    const size_t first = (size_t)(row * kHeads + first_head) * kQuads;
    const int pos = AT(int, q_pos)[row], slot = AT(int, q_slot)[row];
    BARRIER();
    FOR_MINE(i, kGroup * kQuads) {
      shared_q[i] = AT(const float4, q)[first + i];
      shared_dy[i] = AT(const float4, dy)[first + i];
    }
    BARRIER();
    FOR_MINE(h, kGroup) {
      float mean = 0.0f;
      for (uint i = 0; i < kQuads; ++i) {
        mean += dot(shared_dy[h * kQuads + i], AT(const float4, y)[first + h * kQuads + i]);
      }
      shared_mean[h] = mean;
    }
    float sums[kGroup * kDims];
    for (uint i = 0; i < kGroup * kDims; ++i) sums[i] = 0.0f;
    for (uint tile = 0; tile < keys; tile += kTile) {
      BARRIER();
      if (ME == 0) shared_some = 0;
      BARRIER();
      FOR_MINE(i, kTile) {
        const uint key = tile + i;
        const bool sees =
            key < keys && SeesKey(pos, slot, AT(int, kv_pos)[key], AT(int, kv_slot)[key]);
        float score[kGroup], product[kGroup];
        for (uint h = 0; h < kGroup; ++h) score[h] = product[h] = 0.0f;
        if (sees) {
          shared_some = 1;
          const size_t at = (size_t)(key * kKvHeads + kv_head) * kQuads;
          for (uint j = 0; j < kQuads; ++j) {
            const float4 k = AT(const float4, k)[at + j], v = AT(const float4, v)[at + j];
            for (uint h = 0; h < kGroup; ++h) {
              score[h] += dot(shared_q[h * kQuads + j], k);
              product[h] += dot(shared_dy[h * kQuads + j], v);
            }
          }
        }
        for (uint h = 0; h < kGroup; ++h) {
          const float lse = AT(float, lse)[(size_t)row * kHeads + first_head + h];
          const float probability = sees ? Exp(score[h] * kScale - lse) : 0.0f;
          shared_gradient[h * kTile + i] = kScale * probability * (product[h] - shared_mean[h]);
        }
      }
      BARRIER();
      if (shared_some == 0) continue;
      const uint count = min((uint)kTile, keys - tile);
      for (uint i = 0; i < count; ++i) {
        __global const float* k =
            AT(const float, k) + (size_t)((tile + i) * kKvHeads + kv_head) * kDim;
        for (uint h = 0; h < kGroup; ++h) {
          const float gradient = shared_gradient[h * kTile + i];
          for (uint e = 0; e < kDims; ++e) {
            const uint d = ME + e * THREADS;
            if (d < kDim) sums[h * kDims + e] = fma(gradient, k[d], sums[h * kDims + e]);
          }
        }
      }
    }
    for (uint h = 0; h < kGroup; ++h) {
      __global float* dq = AT(float, result) + (size_t)(row * kHeads + first_head + h) * kDim;
      for (uint e = 0; e < kDims; ++e) {
        const uint d = ME + e * THREADS;
        if (d < kDim) dq[d] = sums[h * kDims + e];
      }
    }
  }
}
