// The derivative by the queries of attention over fresh rows. A work-group takes a few query rows
// and heads that share a kv head, its pairs, and the keys in tiles: first a work-item has a key and
// a part of the pairs, whose scores it computes, then dimensions and sums over the keys of the
// tile, in their order.
#include "common.cl"
#include "attention_grad_q.args"
#include "math.kernel"
#include "fresh_keys.cl"

#define kTile 64                    // keys
#define kParts 8                    // of the pairs
#define kPairs (kOwnRows * kGroup)  // row by row
#define kPartPairs ((kPairs + kParts - 1) / kParts)
#define kDims ((kDim + THREADS - 1) / THREADS)  // of a work-item

typedef struct {
  float4 q[kPairs * kQuads];
  float4 dy[kPairs * kQuads];
  float mean[kPairs];
  float lse[kPairs];
  int pos[kOwnRows];
  int slot[kOwnRows];              // -1: no such row
  float gradient[kTile * kPairs];  // of the scores
  uint some;                       // whether a row sees a key of the tile
} Shared;

// A key and what belongs to it.
typedef struct {
  __global const float4* k;
  __global const float4* v;
  int pos, slot;
} Key;

// The gradients of the scores of a key, for the pairs of one part; 0 where the row does not see it.
void Gradients(const Key key, uint place, uint part, __local Shared* s) {
  bool some = false;
  for (uint i = 0; i < kOwnRows; ++i) {
    some = some || SeesKey(s->pos[i], s->slot[i], key.pos, key.slot);
  }
  float score[kPartPairs], product[kPartPairs];
  uint pair[kPartPairs];
  for (uint n = 0; n < kPartPairs; ++n) {
    pair[n] = min(n * kParts + part, (uint)kPairs - 1);
    score[n] = product[n] = 0.0f;
  }
  if (some) {
    s->some = 1;
    for (uint i = 0; i < kQuads; ++i) {
      for (uint n = 0; n < kPartPairs; ++n) {
        score[n] += dot(s->q[pair[n] * kQuads + i], key.k[i]);
        product[n] += dot(s->dy[pair[n] * kQuads + i], key.v[i]);
      }
    }
  }
  for (uint n = 0; n < kPartPairs; ++n) {
    if (n * kParts + part >= kPairs) continue;
    const uint row = pair[n] / kGroup;
    const bool sees = SeesKey(s->pos[row], s->slot[row], key.pos, key.slot);
    const float probability = sees ? Exp(score[n] * kScale - s->lse[pair[n]]) : 0.0f;
    s->gradient[place * kPairs + pair[n]] = kScale * probability * (product[n] - s->mean[pair[n]]);
  }
}

KERNEL(attention_grad_q) {
  __local Shared s;
  const uint rows = ROWS_OF(rows), keys = ROWS_OF(keys);
  const uint groups = kHeads / kGroup, blocks = (rows + kOwnRows - 1) / kOwnRows;
  for (uint item = GROUP; item < blocks * groups; item += GROUPS) {
    const uint first_row = item / groups * kOwnRows, first_head = item % groups * kGroup;
    const uint kv_head = first_head / (kHeads / kKvHeads);
    BARRIER();
    FOR_MINE(i, kPairs * kQuads) {
      const uint pair = i / kQuads, row = min(first_row + pair / kGroup, rows - 1);
      const size_t at = ((size_t)row * kHeads + first_head + pair % kGroup) * kQuads + i % kQuads;
      s.q[i] = AT(const float4, q)[at];
      s.dy[i] = AT(const float4, dy)[at];
    }
    FOR_MINE(i, kOwnRows) {
      const uint row = min(first_row + i, rows - 1);
      s.pos[i] = AT(int, q_pos)[row];
      s.slot[i] = first_row + i < rows ? AT(int, q_slot)[row] : -1;
    }
    BARRIER();
    FOR_MINE(pair, kPairs) {
      const uint row = min(first_row + pair / kGroup, rows - 1);
      const size_t at = (size_t)row * kHeads + first_head + pair % kGroup;
      float mean = 0.0f;
      for (uint i = 0; i < kQuads; ++i) {
        mean += dot(s.dy[pair * kQuads + i], AT(const float4, y)[at * kQuads + i]);
      }
      s.mean[pair] = mean;
      s.lse[pair] = AT(float, lse)[at];
    }
    float sums[kPairs * kDims];
    for (uint i = 0; i < kPairs * kDims; ++i) sums[i] = 0.0f;
    for (uint tile = 0; tile < keys; tile += kTile) {
      const uint count = min((uint)kTile, keys - tile);
      BARRIER();
      if (ME == 0) s.some = 0;
      BARRIER();
      FOR_MINE(unit, count * kParts) {
        const uint key = tile + unit / kParts;
        const size_t at = (size_t)(key * kKvHeads + kv_head) * kQuads;
        const Key facts = {AT(const float4, k) + at, AT(const float4, v) + at, AT(int, kv_pos)[key],
                           AT(int, kv_slot)[key]};
        Gradients(facts, unit / kParts, unit % kParts, &s);
      }
      BARRIER();
      if (s.some == 0) continue;
      for (uint i = 0; i < count; ++i) {
        __global const float* k =
            AT(const float, k) + (size_t)((tile + i) * kKvHeads + kv_head) * kDim;
        for (uint pair = 0; pair < kPairs; ++pair) {
          const float gradient = s.gradient[i * kPairs + pair];
          for (uint e = 0; e < kDims; ++e) {
            const uint d = ME + e * THREADS;
            if (d < kDim) sums[pair * kDims + e] = fma(gradient, k[d], sums[pair * kDims + e]);
          }
        }
      }
    }
    for (uint pair = 0; pair < kPairs && first_row + pair / kGroup < rows; ++pair) {
      __global float* dq =
          AT(float, result) +
          ((size_t)(first_row + pair / kGroup) * kHeads + first_head + pair % kGroup) * kDim;
      for (uint e = 0; e < kDims; ++e) {
        const uint d = ME + e * THREADS;
        if (d < kDim) dq[d] = sums[pair * kDims + e];
      }
    }
  }
}
