// The derivatives by the keys and values of attention over fresh rows. A work-group takes a few
// keys of a kv head and the pairs of a query row and a head in tiles: first a work-item has a pair
// and a part of the keys, whose scores it computes, then dimensions and sums over the pairs of
// the tile, in their order.
#include "common.cl"
#include "attention_grad_kv.args"
#include "math.kernel"
#include "fresh_keys.cl"

#define kTile 64  // pairs
#define kParts 8  // of the keys
#define kPartKeys ((kKeys + kParts - 1) / kParts)
#define kDims ((kDim + THREADS - 1) / THREADS)  // of a work-item

typedef struct {
  float4 k[kKeys * kQuads];
  float4 v[kKeys * kQuads];
  int pos[kKeys];
  int slot[kKeys];  // -1: no such key
  float probability[kTile * kKeys];
  float gradient[kTile * kKeys];  // of the scores
  uint sees[kTile];               // whether the pair sees one of the keys
} Shared;

// One row of queries and its head: what a pair reads.
typedef struct {
  __global const float4* q;
  __global const float4* y;
  __global const float4* dy;
  int pos, slot;
  float lse;
} Query;

// The probabilities of a pair and the gradients of its scores, for the keys of one part.
void Gradients(const Query query, uint place, uint part, __local Shared* s) {
  bool some = false;
  for (uint j = 0; j < kKeys; ++j) {
    some = some || SeesKey(query.pos, query.slot, s->pos[j], s->slot[j]);
  }
  if (part == 0) s->sees[place] = some ? 1 : 0;
  if (!some) return;
  float score[kPartKeys], product[kPartKeys];
  uint key[kPartKeys];
  for (uint n = 0; n < kPartKeys; ++n) {
    key[n] = min(n * kParts + part, (uint)kKeys - 1);
    score[n] = product[n] = 0.0f;
  }
  float mean = 0.0f;
  for (uint i = 0; i < kQuads; ++i) {
    mean += dot(query.dy[i], query.y[i]);
    for (uint n = 0; n < kPartKeys; ++n) {
      score[n] += dot(query.q[i], s->k[key[n] * kQuads + i]);
      product[n] += dot(query.dy[i], s->v[key[n] * kQuads + i]);
    }
  }
  for (uint n = 0; n < kPartKeys; ++n) {
    const uint j = n * kParts + part;
    if (j >= kKeys) continue;
    const bool sees = SeesKey(query.pos, query.slot, s->pos[j], s->slot[j]);
    const float probability = sees ? Exp(score[n] * kScale - query.lse) : 0.0f;
    s->probability[place * kKeys + j] = probability;
    s->gradient[place * kKeys + j] = kScale * probability * (product[n] - mean);
  }
}

KERNEL(attention_grad_kv) {
  __local Shared s;
  const uint rows = ROWS_OF(rows), keys = ROWS_OF(keys);
  const uint tiles = (keys + kKeys - 1) / kKeys, pairs = rows * kGroup;
  for (uint item = GROUP; item < tiles * kKvHeads; item += GROUPS) {
    const uint first = item / kKvHeads * kKeys, kv_head = item % kKvHeads;
    BARRIER();
    FOR_MINE(i, kKeys * kQuads) {
      const uint key = min(first + i / kQuads, keys - 1);
      const size_t at = (size_t)(key * kKvHeads + kv_head) * kQuads + i % kQuads;
      s.k[i] = AT(const float4, k)[at];
      s.v[i] = AT(const float4, v)[at];
    }
    FOR_MINE(i, kKeys) {
      const uint key = min(first + i, keys - 1);
      s.pos[i] = AT(int, kv_pos)[key];
      s.slot[i] = first + i < keys ? AT(int, kv_slot)[key] : -1;
    }
    float dk[kKeys * kDims], dv[kKeys * kDims];
    for (uint i = 0; i < kKeys * kDims; ++i) dk[i] = dv[i] = 0.0f;
    for (uint tile = 0; tile < pairs; tile += kTile) {
      const uint count = min((uint)kTile, pairs - tile);
      BARRIER();
      FOR_MINE(unit, count * kParts) {
        const uint i = unit / kParts;
        const uint row = (tile + i) / kGroup, head = kv_head * kGroup + (tile + i) % kGroup;
        const size_t at = ((size_t)row * kHeads + head) * kQuads;
        const Query query = {
            AT(const float4, q) + at,  AT(const float4, y) + at,
            AT(const float4, dy) + at, AT(int, q_pos)[row],
            AT(int, q_slot)[row],      AT(float, lse)[(size_t)row * kHeads + head]};
        Gradients(query, i, unit % kParts, &s);
      }
      BARRIER();
      for (uint i = 0; i < count; ++i) {
        if (s.sees[i] == 0) continue;
        const uint row = (tile + i) / kGroup, head = kv_head * kGroup + (tile + i) % kGroup;
        const size_t at = ((size_t)row * kHeads + head) * kDim;
        __global const float* q = AT(const float, q) + at;
        __global const float* dy = AT(const float, dy) + at;
        for (uint j = 0; j < kKeys; ++j) {
          const float gradient = s.gradient[i * kKeys + j];
          const float probability = s.probability[i * kKeys + j];
          for (uint e = 0; e < kDims; ++e) {
            const uint d = ME + e * THREADS;
            if (d >= kDim) continue;
            dk[j * kDims + e] = fma(gradient, q[d], dk[j * kDims + e]);
            dv[j * kDims + e] = fma(probability, dy[d], dv[j * kDims + e]);
          }
        }
      }
    }
    for (uint j = 0; j < kKeys && first + j < keys; ++j) {
      const size_t at = ((size_t)(first + j) * kKvHeads + kv_head) * kDim;
      for (uint e = 0; e < kDims; ++e) {
        const uint d = ME + e * THREADS;
        if (d >= kDim) continue;
        AT(float, result)[at + d] = dk[j * kDims + e];
        AT(float, dv)[at + d] = dv[j * kDims + e];
      }
    }
  }
}
