#version 460
// The derivative by the queries of attention over fresh rows. A workgroup takes a few query rows
// and heads that share a kv head, its pairs, and the keys in tiles: first an invocation has a key
// and a part of the pairs, whose scores it computes, then dimensions and sums over the keys of
// the tile, in their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_grad_q.args.glsl"
#include "math.kernel"
#include "fresh_keys.glsl"

const uint kTile = 64;                                         // keys
const uint kParts = (gl_WorkGroupSize.x + kTile - 1) / kTile;  // of the pairs
const uint kPairs = kOwnRows * kGroup;                         // row by row
const uint kPairQuads = (kPairs + 3) / 4;
const uint kPartPairs = (kPairQuads * 4 + kParts - 1) / kParts;
const uint kStride = kQuads + 1;  // of pairs, in other banks
const uint kDims = (kDim + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;  // of an invocation

shared vec4 shared_q[kPairs * kStride];
shared vec4 shared_dy[kPairs * kStride];
shared float shared_mean[kPairs];
shared float shared_lse[kPairs];
shared int shared_pos[kOwnRows];
shared int shared_slot[kOwnRows];                 // -1: no such row
shared vec4 shared_gradient[kTile * kPairQuads];  // of the scores
shared uint shared_seen;  // a key of the newest tile that a row sees, plus 1

uint me;

// The element that the first of the pair's dimensions has in q, y, dy and the result.
uint PairAt(uint first_row, uint first_head, uint pair, uint rows) {
  const uint row = min(first_row + pair / kGroup, rows - 1);
  return (row * kHeads + first_head + pair % kGroup) * kDim;
}

void LoadPairs(uint first_row, uint first_head, uint rows) {
  for (uint i = me; i < kPairs * kQuads; i += gl_WorkGroupSize.x) {
    const uint pair = i / kQuads, quad = i % kQuads;
    const uint at = PairAt(first_row, first_head, pair, rows) / 4 + quad;
    shared_q[pair * kStride + quad] = F32x4(p.q).v[at];
    shared_dy[pair * kStride + quad] = F32x4(p.dy).v[at];
  }
  for (uint i = me; i < kOwnRows; i += gl_WorkGroupSize.x) {
    const uint row = min(first_row + i, rows - 1);
    shared_pos[i] = I32(p.q_pos).v[row];
    shared_slot[i] = first_row + i < rows ? I32(p.q_slot).v[row] : -1;
  }
  if (me == 0) shared_seen = 0;
  barrier();
  for (uint pair = me; pair < kPairs; pair += gl_WorkGroupSize.x) {
    const uint at = PairAt(first_row, first_head, pair, rows);
    float mean = 0.0;
    for (uint i = 0; i < kQuads; ++i) {
      mean += dot(shared_dy[pair * kStride + i], F32x4(p.y).v[at / 4 + i]);
    }
    shared_mean[pair] = mean;
    shared_lse[pair] = F32(p.lse).v[at / kDim];
  }
}

// The gradients of the scores of a key, for the pairs of one part; 0 where the row does not see it.
void Gradients(uint kv_head, uint key, uint place, uint part, uint keys) {
  const int key_pos = I32(p.kv_pos).v[min(key, keys - 1)];
  const int key_slot = key < keys ? I32(p.kv_slot).v[key] : -2;
  bool some = false;
  for (uint i = 0; i < kOwnRows; ++i) {
    some = some || SeesKey(shared_pos[i], shared_slot[i], key_pos, key_slot);
  }
  float score[kPartPairs], product[kPartPairs];
  for (uint n = 0; n < kPartPairs; ++n) score[n] = product[n] = 0.0;
  if (some) {
    shared_seen = key + 1;
    uint at_pair[kPartPairs];
    for (uint n = 0; n < kPartPairs; ++n) at_pair[n] = min(n * kParts + part, kPairs - 1) * kStride;
    const uint first = (key * kKvHeads + kv_head) * kQuads;
    for (uint i = 0; i < kQuads; ++i) {
      const vec4 k = F32x4(p.k).v[first + i], v = F32x4(p.v).v[first + i];
      for (uint n = 0; n < kPartPairs; ++n) {
        score[n] += dot(shared_q[at_pair[n] + i], k);
        product[n] += dot(shared_dy[at_pair[n] + i], v);
      }
    }
  }
  for (uint n = 0; n < kPartPairs; ++n) {
    const uint j = n * kParts + part;
    if (j >= kPairQuads * 4) continue;
    const uint pair = min(j, kPairs - 1), row = pair / kGroup;
    const bool sees = SeesKey(shared_pos[row], shared_slot[row], key_pos, key_slot);
    const float probability = sees ? Exp(score[n] * kScale - shared_lse[pair]) : 0.0;
    shared_gradient[place * kPairQuads + j / 4][j % 4] =
        kScale * probability * (product[n] - shared_mean[pair]);
  }
}

void Pairs(uint first_row, uint first_head, uint rows, uint keys) {
  const uint kv_head = first_head / (kHeads / kKvHeads);
  barrier();
  LoadPairs(first_row, first_head, rows);
  vec4 sums[kPairQuads * kDims];  // four pairs each
  for (uint i = 0; i < kPairQuads * kDims; ++i) sums[i] = vec4(0.0);
  for (uint tile = 0; tile < keys; tile += kTile) {
    barrier();
    for (uint i = me; i < kTile * kParts; i += gl_WorkGroupSize.x) {
      Gradients(kv_head, tile + i / kParts, i / kParts, i % kParts, keys);
    }
    barrier();
    if (shared_seen <= tile) continue;
    const uint count = min(kTile, keys - tile);
    for (uint i = 0; i < count; ++i) {
      const uint at = ((tile + i) * kKvHeads + kv_head) * kDim;
      for (uint e = 0; e < kDims; ++e) {
        const uint d = me + e * gl_WorkGroupSize.x;
        if (d >= kDim) continue;
        const vec4 k = vec4(F32(p.k).v[at + d]);
        for (uint n = 0; n < kPairQuads; ++n) {
          const uint sum = n * kDims + e;
          sums[sum] = fma(shared_gradient[i * kPairQuads + n], k, sums[sum]);
        }
      }
    }
  }
  for (uint pair = 0; pair < kPairs && first_row + pair / kGroup < rows; ++pair) {
    const uint at = PairAt(first_row, first_head, pair, rows);
    for (uint e = 0; e < kDims; ++e) {
      const uint d = me + e * gl_WorkGroupSize.x;
      if (d < kDim) F32(p.result).v[at + d] = sums[pair / 4 * kDims + e][pair % 4];
    }
  }
}

void main() {
  me = gl_LocalInvocationID.x;
  const uint rows = At(p.rows, Step(p.step)), keys = At(p.keys, Step(p.step));
  const uint groups = kHeads / kGroup, blocks = (rows + kOwnRows - 1) / kOwnRows;
  for (uint item = GROUP.x; item < blocks * groups; item += GROUPS.x) {
    Pairs(item / groups * kOwnRows, item % groups * kGroup, rows, keys);
  }
}
