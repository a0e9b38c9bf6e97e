#version 460
// The derivatives by the keys and values of attention over fresh rows. A workgroup takes a few keys
// of a kv head and the pairs of a query row and one of some heads in tiles: first the probabilities
// of a tile and the gradients of its scores, then each invocation adds its dimensions of the pairs
// to its keys, pair by pair. Parts of the heads have results of their own.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_grad_kv.args.glsl"
#include "math.kernel"

const uint kOwn = kKeys;
#define OTHER_1 p.q
#define OTHER_2 p.dy
#define OWN_1 p.k
#define OWN_2 p.v
#include "attention_grad.glsl"

shared vec4 shared_probability[kTile * kOwnQuads];
shared vec4 shared_gradient[kTile * kOwnQuads];  // of the scores
shared int shared_key_pos[kOwn];
shared int shared_key_slot[kOwn];  // -1: no such key
shared int shared_pos[kTile];
shared int shared_slot[kTile];   // -2: no such pair
shared uint shared_seen[kTile];  // whether the pair may see a key
shared float shared_lse[kTile];
shared float shared_mean[kTile];

uint first_key, kv_head, first_head;
uint key_count, pair_count;
uint tile;  // its first pair
Bounds key_bounds;
vec4 dk[kSumTurns * kSumRows], dv[kSumTurns * kSumRows];

uint RowOf(uint pair) { return min(pair, pair_count - 1) / kGroup; }
uint HeadOf(uint pair) { return first_head + min(pair, pair_count - 1) % kGroup; }

uint OwnAt(uint own) { return (min(first_key + own, key_count - 1) * kKvHeads + kv_head) * kQuads; }
uint OtherAt(uint other) { return (RowOf(tile + other) * kHeads + HeadOf(tile + other)) * kQuads; }

void LoadFacts() {
  for (uint i = me; i < kTile; i += gl_WorkGroupSize.x) {
    const uint row = RowOf(tile + i), at = row * kHeads + HeadOf(tile + i);
    const int pos = I32(p.q_pos).v[row];
    const int slot = tile + i < pair_count ? I32(p.q_slot).v[row] : -2;
    Bounds bounds = NoRows();
    Include(pos, slot, bounds);
    shared_pos[i] = pos;
    shared_slot[i] = slot;
    shared_seen[i] = MaySee(bounds, key_bounds) ? 1 : 0;
    shared_lse[i] = F32(p.lse).v[at];
    shared_mean[i] = F32(p.means).v[at];
  }
}

void StoreScore(uint other, uint own, float score, float product) {
  const bool sees =
      SeesKey(shared_pos[other], shared_slot[other], shared_key_pos[own], shared_key_slot[own]);
  const float probability = sees ? Exp(score * kScale - shared_lse[other]) : 0.0;
  const float gradient = sees ? kScale * probability * (product - shared_mean[other]) : 0.0;
  shared_probability[other * kOwnQuads + own / 4][own % 4] = probability;
  shared_gradient[other * kOwnQuads + own / 4][own % 4] = gradient;
}

// Adds the pairs of the tile to the sums, two at a time so that their rows arrive together.
void AddTile() {
  const uint kTogether = 2;
  for (uint i = 0; i < kTile; i += kTogether) {
    uint seen = 0;
    [[unroll]] for (uint n = 0; n < kTogether; ++n) seen |= shared_seen[i + n];
    if (seen == 0) continue;
    [[unroll]] for (uint turn = 0; turn < kSumTurns; ++turn) {
      const uint unit = min(me + turn * gl_WorkGroupSize.x, kSumUnits - 1);
      const uint own = unit / kQuads * (kSumRows / 4);
      vec4 q[kTogether], dy[kTogether];
      [[unroll]] for (uint n = 0; n < kTogether; ++n) {
        const uint at = OtherAt(i + n) + unit % kQuads;
        q[n] = F32x4(p.q).v[at];
        dy[n] = F32x4(p.dy).v[at];
      }
      [[unroll]] for (uint n = 0; n < kTogether; ++n) {
        [[unroll]] for (uint j = 0; j < kSumRows; j += 4) {
          const vec4 gradient = shared_gradient[(i + n) * kOwnQuads + own + j / 4];
          const vec4 probability = shared_probability[(i + n) * kOwnQuads + own + j / 4];
          [[unroll]] for (uint e = 0; e < 4; ++e) {
            const uint sum = turn * kSumRows + j + e;
            dk[sum] = fma(vec4(gradient[e]), q[n], dk[sum]);
            dv[sum] = fma(vec4(probability[e]), dy[n], dv[sum]);
          }
        }
      }
    }
  }
}

void StoreSums(uint part) {
  [[unroll]] for (uint turn = 0; turn < kSumTurns; ++turn) {
    const uint unit = me + turn * gl_WorkGroupSize.x;
    if (unit >= kSumUnits) continue;
    [[unroll]] for (uint j = 0; j < kSumRows; ++j) {
      const uint key = first_key + unit / kQuads * kSumRows + j;
      if (key >= key_count) continue;
      const uint row = (part * key_count + key) * kKvHeads + kv_head;
      const uint at = (row * kQuads + unit % kQuads) * 4;
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        F32(p.result).v[at + e] = dk[turn * kSumRows + j][e];
        F32(p.dv).v[at + e] = dv[turn * kSumRows + j][e];
      }
    }
  }
}

// Finds the keys' slots and positions, and the rows that may see them.
void LoadKeys(uint rows) {
  if (me == 0) {
    shared_first = rows;
    shared_end = 0;
  }
  key_bounds = NoRows();
  for (uint i = 0; i < kOwn && first_key + i < key_count; ++i) {
    Include(I32(p.kv_pos).v[first_key + i], I32(p.kv_slot).v[first_key + i], key_bounds);
  }
  for (uint i = me; i < kOwn; i += gl_WorkGroupSize.x) {
    const uint key = min(first_key + i, key_count - 1);
    shared_key_pos[i] = I32(p.kv_pos).v[key];
    shared_key_slot[i] = first_key + i < key_count ? I32(p.kv_slot).v[key] : -1;
  }
  barrier();
  for (uint row = me; row < rows; row += gl_WorkGroupSize.x) {
    Bounds bounds = NoRows();
    Include(I32(p.q_pos).v[row], I32(p.q_slot).v[row], bounds);
    if (!MaySee(bounds, key_bounds)) continue;
    atomicMin(shared_first, row);
    atomicMax(shared_end, row + 1);
  }
  barrier();
}

void main() {
  me = gl_LocalInvocationID.x;
  const uint rows = At(p.rows, Step(p.step));
  key_count = At(p.keys, Step(p.step));
  const uint tiles = (key_count + kOwn - 1) / kOwn, parts = kHeads / kKvHeads / kGroup;
  for (uint item = GROUP.x; item < tiles * kKvHeads * parts; item += GROUPS.x) {
    const uint part = item % parts;
    kv_head = item / parts % kKvHeads;
    first_key = item / parts / kKvHeads * kOwn;
    first_head = (kv_head * parts + part) * kGroup;
    pair_count = rows * kGroup;
    barrier();
    LoadKeys(rows);
    for (uint i = 0; i < kSumTurns * kSumRows; ++i) dk[i] = dv[i] = vec4(0.0);
    const uint end = shared_end * kGroup;
    for (tile = shared_first * kGroup; tile < end; tile += kTile) {
      ComputeScores();
      barrier();
      AddTile();
    }
    StoreSums(part);
  }
}
