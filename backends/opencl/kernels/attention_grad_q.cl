// The derivative by the queries of attention over fresh rows. A work-group takes a few query rows
// and heads that share a kv head, its pairs, and the keys in tiles: first the gradients of the
// scores of a tile, then each work-item adds its dimensions of the keys to its pairs, key by key.
#include "common.cl"
#include "attention_grad_q.args"
#include "math.kernel"

#define kOwn kPairs
#include "attention_grad.cl"

#define kOwnRows (kOwn / kGroup)  // what is left over has no pair

typedef struct {
  Staged staged;
  float4 gradient[kTile * kOwnQuads];   // of the scores
  int key_pos[kTile], key_slot[kTile];  // slot -2: no such key
  uint seen[kTile];                     // whether a pair may see the key
  int pos[kOwn], slot[kOwn];            // slot -1: no such pair
  float lse[kOwn], mean[kOwn];
} Shared;

// Stores the gradient of a score, of a key of the tile and a pair.
INLINED void StoreScore(uint key, uint pair, float score, float product, __local Shared* s) {
  const bool sees = SeesKey(s->pos[pair], s->slot[pair], s->key_pos[key], s->key_slot[key]);
  const float probability = sees ? Exp(score * kScale - s->lse[pair]) : 0.0f;
  ((__local float*)s->gradient)[key * kOwn + pair] =
      sees ? kScale * probability * (product - s->mean[pair]) : 0.0f;
}

#include "attention_grad_scores.cl"

KERNEL(attention_grad_q) {
  __local Shared s;
  const uint rows = ROWS_OF(rows), keys = ROWS_OF(keys);
  __global const float4* k = AT(const float4, k);
  const uint groups = kHeads / kGroup, blocks = (rows + kOwnRows - 1) / kOwnRows;
  for (uint item = GROUP; item < blocks * groups; item += GROUPS) {
    const uint first_row = item / groups * kOwnRows, first_head = item % groups * kGroup;
    const uint kv_head = first_head / (kHeads / kKvHeads);
    BARRIER();
    if (ME == 0) {
      s.staged.first = keys;
      s.staged.end = 0;
    }
    Bounds row_bounds = NoRows();
    for (uint row = first_row; row < min(first_row + kOwnRows, rows); ++row) {
      row_bounds = Include(AT(int, q_pos)[row], AT(int, q_slot)[row], row_bounds);
    }
    FOR_MINE(i, kOwn) {
      const uint row = min(first_row + i / kGroup, rows - 1);
      const size_t at = (size_t)row * kHeads + first_head + i % kGroup;
      const bool there = i < kOwnRows * kGroup && first_row + i / kGroup < rows;
      s.pos[i] = AT(int, q_pos)[row];
      s.slot[i] = there ? AT(int, q_slot)[row] : -1;
      s.lse[i] = AT(float, lse)[at];
      s.mean[i] = AT(float, means)[at];
    }
    BARRIER();
    FOR_MINE(key, keys) {
      const Bounds bounds = Include(AT(int, kv_pos)[key], AT(int, kv_slot)[key], NoRows());
      if (!MaySee(row_bounds, bounds)) continue;
      atomic_min(&s.staged.first, key);
      atomic_max(&s.staged.end, key + 1);
    }
    BARRIER();
    float4 dq[kSumTurns * kSumRows];
    for (uint i = 0; i < kSumTurns * kSumRows; ++i) dq[i] = 0.0f;
    for (uint tile = s.staged.first; tile < s.staged.end; tile += kTile) {
      float sums[2 * kScores];
      for (uint i = 0; i < 2 * kScores; ++i) sums[i] = 0.0f;
      for (uint first = 0; first < kQuads; first += kDepth) {
        BARRIER();
        if (first == 0) {
          FOR_MINE(i, kTile) {
            const uint key = min(tile + i, keys - 1);
            s.key_pos[i] = AT(int, kv_pos)[key];
            s.key_slot[i] = tile + i < keys ? AT(int, kv_slot)[key] : -2;
            s.seen[i] = MaySee(row_bounds, Include(s.key_pos[i], s.key_slot[i], NoRows())) ? 1 : 0;
          }
        }
        FOR_MINE(i, 2 * kRows * kDepth) {
          const uint row = i / kDepth % kRows, quad = first + i % kDepth;
          const bool second = i >= kRows * kDepth;
          float4 x = 0.0f;
          if (quad < kQuads && row < kTile) {
            const size_t at = (size_t)(min(tile + row, keys - 1) * kKvHeads + kv_head) * kQuads;
            x = (second ? AT(const float4, v) : k)[at + quad];
          } else if (quad < kQuads) {
            const uint own = row - kTile, of = min(first_row + own / kGroup, rows - 1);
            const size_t at = ((size_t)of * kHeads + first_head + own % kGroup) * kQuads;
            x = (second ? AT(const float4, dy) : AT(const float4, q))[at + quad];
          }
          s.staged.rows[i / kDepth * kPitch + i % kDepth] = x;
        }
        BARRIER();
        AddAllProducts(&s.staged, sums);
      }
      StoreScores(sums, &s);
      BARRIER();
      for (uint i = 0; i < kTile; ++i) {
        if (s.seen[i] == 0) continue;
        const size_t at = (size_t)(min(tile + i, keys - 1) * kKvHeads + kv_head) * kQuads;
        UNROLL_TURNS
        for (uint turn = 0; turn < kSumTurns; ++turn) {
          const uint unit = min(ME + turn * THREADS, (uint)kSumUnits - 1);
          const float4 key = k[at + unit % kQuads];
          const __local float* gradient =
              (const __local float*)s.gradient + i * kOwn + unit / kQuads * kSumRows;
          UNROLL
          for (uint j = 0; j < kSumRows; ++j) {
            const uint sum = turn * kSumRows + j;
            dq[sum] = fma((float4)(gradient[j]), key, dq[sum]);
          }
        }
      }
    }
    for (uint turn = 0; turn < kSumTurns; ++turn) {
      const uint unit = ME + turn * THREADS;
      if (unit >= kSumUnits) continue;
      for (uint j = 0; j < kSumRows; ++j) {
        const uint own = unit / kQuads * kSumRows + j, row = first_row + own / kGroup;
        if (own >= kOwnRows * kGroup || row >= rows) continue;
        const size_t at = ((size_t)row * kHeads + first_head + own % kGroup) * kQuads;
        AT(float4, result)[at + unit % kQuads] = dq[turn * kSumRows + j];
      }
    }
  }
}
