#version 460
// The derivative by the queries of attention over fresh rows. A workgroup takes a few query rows
// and heads that share a kv head, its pairs, and the keys in tiles: first the gradients of the
// scores of a tile, then each invocation adds its dimensions of the keys to its pairs, key by key.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_grad_q.args.glsl"
#include "math.kernel"

const uint kOwn = kPairs;
#define OTHER_1 p.k
#define OTHER_2 p.v
#define OWN_1 p.q
#define OWN_2 p.dy
#include "attention_grad.glsl"

const uint kOwnRows = kOwn / kGroup;             // what is left over has no pair
shared vec4 shared_gradient[kTile * kOwnQuads];  // of the scores
shared int shared_key_pos[kTile];
shared int shared_key_slot[kTile];  // -2: no such key
shared uint shared_seen[kTile];     // whether a pair may see the key
shared int shared_pos[kOwn];
shared int shared_slot[kOwn];  // -1: no such pair
shared float shared_lse[kOwn];
shared float shared_mean[kOwn];

uint first_row, first_head, kv_head;
uint row_count, key_count;
uint tile;  // its first key
Bounds row_bounds;
vec4 dq[kSumTurns * kSumRows];

bool IsPair(uint own) { return own < kOwnRows * kGroup && first_row + own / kGroup < row_count; }
uint RowOf(uint own) { return min(first_row + own / kGroup, row_count - 1); }

uint OwnAt(uint own) { return (RowOf(own) * kHeads + first_head + own % kGroup) * kQuads; }
uint OtherAt(uint other) {
  return (min(tile + other, key_count - 1) * kKvHeads + kv_head) * kQuads;
}

void LoadFacts() {
  for (uint i = me; i < kTile; i += gl_WorkGroupSize.x) {
    const uint key = min(tile + i, key_count - 1);
    const int pos = I32(p.kv_pos).v[key];
    const int slot = tile + i < key_count ? I32(p.kv_slot).v[key] : -2;
    Bounds bounds = NoRows();
    Include(pos, slot, bounds);
    shared_key_pos[i] = pos;
    shared_key_slot[i] = slot;
    shared_seen[i] = MaySee(row_bounds, bounds) ? 1 : 0;
  }
}

void StoreScore(uint other, uint own, float score, float product) {
  const bool sees =
      SeesKey(shared_pos[own], shared_slot[own], shared_key_pos[other], shared_key_slot[other]);
  const float probability = sees ? Exp(score * kScale - shared_lse[own]) : 0.0;
  const float gradient = sees ? kScale * probability * (product - shared_mean[own]) : 0.0;
  shared_gradient[other * kOwnQuads + own / 4][own % 4] = gradient;
}

// Adds the keys of the tile to the sums, two at a time so that they arrive together.
void AddTile() {
  const uint kTogether = 2;
  for (uint i = 0; i < kTile; i += kTogether) {
    uint seen = 0;
    [[unroll]] for (uint n = 0; n < kTogether; ++n) seen |= shared_seen[i + n];
    if (seen == 0) continue;
    [[unroll]] for (uint turn = 0; turn < kSumTurns; ++turn) {
      const uint unit = min(me + turn * gl_WorkGroupSize.x, kSumUnits - 1);
      const uint own = unit / kQuads * (kSumRows / 4);
      vec4 k[kTogether];
      [[unroll]] for (uint n = 0; n < kTogether; ++n) {
        k[n] = F32x4(p.k).v[OtherAt(i + n) + unit % kQuads];
      }
      [[unroll]] for (uint n = 0; n < kTogether; ++n) {
        [[unroll]] for (uint j = 0; j < kSumRows; j += 4) {
          const vec4 gradient = shared_gradient[(i + n) * kOwnQuads + own + j / 4];
          [[unroll]] for (uint e = 0; e < 4; ++e) {
            const uint sum = turn * kSumRows + j + e;
            dq[sum] = fma(vec4(gradient[e]), k[n], dq[sum]);
          }
        }
      }
    }
  }
}

void StoreSums() {
  [[unroll]] for (uint turn = 0; turn < kSumTurns; ++turn) {
    const uint unit = me + turn * gl_WorkGroupSize.x;
    if (unit >= kSumUnits) continue;
    [[unroll]] for (uint j = 0; j < kSumRows; ++j) {
      const uint own = unit / kQuads * kSumRows + j;
      if (!IsPair(own)) continue;
      const uint at = (OwnAt(own) + unit % kQuads) * 4;
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        F32(p.result).v[at + e] = dq[turn * kSumRows + j][e];
      }
    }
  }
}

// Finds the facts of the pairs, and the keys that they may see.
void LoadPairs() {
  if (me == 0) {
    shared_first = key_count;
    shared_end = 0;
  }
  row_bounds = NoRows();
  for (uint i = 0; i < kOwnRows && first_row + i < row_count; ++i) {
    Include(I32(p.q_pos).v[first_row + i], I32(p.q_slot).v[first_row + i], row_bounds);
  }
  for (uint i = me; i < kOwn; i += gl_WorkGroupSize.x) {
    const uint row = RowOf(i), at = OwnAt(i) / kQuads;
    shared_pos[i] = I32(p.q_pos).v[row];
    shared_slot[i] = IsPair(i) ? I32(p.q_slot).v[row] : -1;
    shared_lse[i] = F32(p.lse).v[at];
    shared_mean[i] = F32(p.means).v[at];
  }
  barrier();
  for (uint key = me; key < key_count; key += gl_WorkGroupSize.x) {
    Bounds bounds = NoRows();
    Include(I32(p.kv_pos).v[key], I32(p.kv_slot).v[key], bounds);
    if (!MaySee(row_bounds, bounds)) continue;
    atomicMin(shared_first, key);
    atomicMax(shared_end, key + 1);
  }
  barrier();
}

void main() {
  me = gl_LocalInvocationID.x;
  row_count = At(p.rows, Step(p.step));
  key_count = At(p.keys, Step(p.step));
  const uint groups = kHeads / kGroup, blocks = (row_count + kOwnRows - 1) / kOwnRows;
  for (uint item = GROUP.x; item < blocks * groups; item += GROUPS.x) {
    first_row = item / groups * kOwnRows;
    first_head = item % groups * kGroup;
    kv_head = first_head / (kHeads / kKvHeads);
    barrier();
    LoadPairs();
    for (uint i = 0; i < kSumTurns * kSumRows; ++i) dq[i] = vec4(0.0);
    for (tile = shared_first; tile < shared_end; tile += kTile) {
      ComputeScores();
      barrier();
      AddTile();
    }
    StoreSums();
  }
}
