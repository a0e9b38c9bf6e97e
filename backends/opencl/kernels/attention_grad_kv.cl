// The derivatives by the keys and values of attention over fresh rows. A work-group takes a few
// keys of a kv head and the pairs of a query row and one of some heads in tiles: first the
// probabilities of a tile and the gradients of its scores, then each work-item adds its dimensions
// of the pairs to its keys, pair by pair. Parts of the heads have results of their own.
#include "common.cl"
#include "attention_grad_kv.args"
#include "math.kernel"

#define kOwn kKeys
#include "attention_grad.cl"

typedef struct {
  Staged staged;
  float4 probability[kTile * kOwnQuads];
  float4 gradient[kTile * kOwnQuads];  // of the scores
  int key_pos[kOwn], key_slot[kOwn];   // slot -1: no such key
  int pos[kTile], slot[kTile];         // slot -2: no such pair
  uint seen[kTile];                    // whether the pair may see a key
  float lse[kTile], mean[kTile];
} Shared;

// Stores the probability and the gradient of a score, of a pair of the tile and a key.
INLINED void StoreScore(uint pair, uint key, float score, float product, __local Shared* s) {
  const bool sees = SeesKey(s->pos[pair], s->slot[pair], s->key_pos[key], s->key_slot[key]);
  const float probability = sees ? Exp(score * kScale - s->lse[pair]) : 0.0f;
  ((__local float*)s->probability)[pair * kOwn + key] = probability;
  ((__local float*)s->gradient)[pair * kOwn + key] =
      sees ? kScale * probability * (product - s->mean[pair]) : 0.0f;
}

#include "attention_grad_scores.cl"

// The head of a row at which a pair is.
size_t PlaceOf(uint pair, uint pairs, uint first_head) {
  pair = min(pair, pairs - 1);
  return (size_t)(pair / kGroup) * kHeads + first_head + pair % kGroup;
}

KERNEL(attention_grad_kv) {
  __local Shared s;
  const uint rows = ROWS_OF(rows), keys = ROWS_OF(keys), pairs = rows * kGroup;
  __global const float4* q = AT(const float4, q);
  __global const float4* dy = AT(const float4, dy);
  const uint tiles = (keys + kOwn - 1) / kOwn, parts = kHeads / kKvHeads / kGroup;
  for (uint item = GROUP; item < tiles * kKvHeads * parts; item += GROUPS) {
    const uint part = item % parts, kv_head = item / parts % kKvHeads;
    const uint first_key = item / parts / kKvHeads * kOwn;
    const uint first_head = (kv_head * parts + part) * kGroup;
    BARRIER();
    if (ME == 0) {
      s.staged.first = rows;
      s.staged.end = 0;
    }
    Bounds key_bounds = NoRows();
    for (uint key = first_key; key < min(first_key + kOwn, keys); ++key) {
      key_bounds = Include(AT(int, kv_pos)[key], AT(int, kv_slot)[key], key_bounds);
    }
    FOR_MINE(i, kOwn) {
      const uint key = min(first_key + i, keys - 1);
      s.key_pos[i] = AT(int, kv_pos)[key];
      s.key_slot[i] = first_key + i < keys ? AT(int, kv_slot)[key] : -1;
    }
    BARRIER();
    FOR_MINE(row, rows) {
      const Bounds bounds = Include(AT(int, q_pos)[row], AT(int, q_slot)[row], NoRows());
      if (!MaySee(bounds, key_bounds)) continue;
      atomic_min(&s.staged.first, row);
      atomic_max(&s.staged.end, row + 1);
    }
    BARRIER();
    float4 dk[kSumTurns * kSumRows], dv[kSumTurns * kSumRows];
    for (uint i = 0; i < kSumTurns * kSumRows; ++i) dk[i] = dv[i] = 0.0f;
    for (uint tile = s.staged.first * kGroup; tile < s.staged.end * kGroup; tile += kTile) {
      float sums[2 * kScores];
      for (uint i = 0; i < 2 * kScores; ++i) sums[i] = 0.0f;
      for (uint first = 0; first < kQuads; first += kDepth) {
        BARRIER();
        if (first == 0) {
          FOR_MINE(i, kTile) {
            const uint row = min(tile + i, pairs - 1) / kGroup;
            const size_t at = PlaceOf(tile + i, pairs, first_head);
            s.pos[i] = AT(int, q_pos)[row];
            s.slot[i] = tile + i < pairs ? AT(int, q_slot)[row] : -2;
            s.seen[i] = MaySee(Include(s.pos[i], s.slot[i], NoRows()), key_bounds) ? 1 : 0;
            s.lse[i] = AT(float, lse)[at];
            s.mean[i] = AT(float, means)[at];
          }
        }
        FOR_MINE(i, 2 * kRows * kDepth) {
          const uint row = i / kDepth % kRows, quad = first + i % kDepth;
          const bool second = i >= kRows * kDepth;
          float4 x = 0.0f;
          if (quad < kQuads && row < kTile) {
            x = (second ? dy : q)[PlaceOf(tile + row, pairs, first_head) * kQuads + quad];
          } else if (quad < kQuads) {
            const uint key = min(first_key + row - kTile, keys - 1);
            const size_t at = (size_t)(key * kKvHeads + kv_head) * kQuads;
            x = (second ? AT(const float4, v) : AT(const float4, k))[at + quad];
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
        const size_t at = PlaceOf(tile + i, pairs, first_head) * kQuads;
        UNROLL_TURNS
        for (uint turn = 0; turn < kSumTurns; ++turn) {
          const uint unit = min(ME + turn * THREADS, (uint)kSumUnits - 1);
          const float4 query = q[at + unit % kQuads], gradient_of_y = dy[at + unit % kQuads];
          const uint own = i * kOwn + unit / kQuads * kSumRows;
          const __local float* gradient = (const __local float*)s.gradient + own;
          const __local float* probability = (const __local float*)s.probability + own;
          UNROLL
          for (uint j = 0; j < kSumRows; ++j) {
            const uint sum = turn * kSumRows + j;
            dk[sum] = fma((float4)(gradient[j]), query, dk[sum]);
            dv[sum] = fma((float4)(probability[j]), gradient_of_y, dv[sum]);
          }
        }
      }
    }
    for (uint turn = 0; turn < kSumTurns; ++turn) {
      const uint unit = ME + turn * THREADS;
      if (unit >= kSumUnits) continue;
      for (uint j = 0; j < kSumRows; ++j) {
        const uint key = first_key + unit / kQuads * kSumRows + j;
        if (key >= keys) continue;
        const size_t at = ((size_t)(part * keys + key) * kKvHeads + kv_head) * kQuads;
        AT(float4, result)[at + unit % kQuads] = dk[turn * kSumRows + j];
        AT(float4, dv)[at + unit % kQuads] = dv[turn * kSumRows + j];
      }
    }
  }
}
