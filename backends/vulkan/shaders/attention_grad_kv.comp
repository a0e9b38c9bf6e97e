#version 460
// The derivatives by the keys and values of attention over fresh rows. A workgroup takes a few keys
// of a kv head and the pairs of a query row and a head in tiles: first an invocation has a pair and
// a part of the keys, whose scores it computes, then dimensions and sums over the pairs of the
// tile, in their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_grad_kv.args.glsl"
#include "math.kernel"
#include "fresh_keys.glsl"

const uint kTile = 64;                                         // pairs
const uint kParts = (gl_WorkGroupSize.x + kTile - 1) / kTile;  // of the keys
const uint kKeyQuads = (kKeys + 3) / 4;
const uint kPartKeys = (kKeyQuads * 4 + kParts - 1) / kParts;
const uint kStride = kQuads + 1;                                          // of keys, in other banks
const uint kDims = (kDim + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;  // of an invocation

shared vec4 shared_k[kKeys * kStride];
shared vec4 shared_v[kKeys * kStride];
shared int shared_pos[kKeyQuads * 4];
shared int shared_slot[kKeyQuads * 4];  // -1: no such key
shared vec4 shared_probability[kTile * kKeyQuads];
shared vec4 shared_gradient[kTile * kKeyQuads];  // of the scores
shared uint shared_sees[kTile];                  // whether the pair sees one of the keys
shared uint shared_seen;                         // a pair of the newest tile that sees one, plus 1

uint me;
uint first_head;  // of the kv head

void LoadKeys(uint first, uint kv_head, uint keys) {
  for (uint i = me; i < kKeys * kQuads; i += gl_WorkGroupSize.x) {
    const uint key = min(first + i / kQuads, keys - 1);
    const uint at = (key * kKvHeads + kv_head) * kQuads + i % kQuads;
    const uint place = i / kQuads * kStride + i % kQuads;
    shared_k[place] = F32x4(p.k).v[at];
    shared_v[place] = F32x4(p.v).v[at];
  }
  for (uint i = me; i < kKeyQuads * 4; i += gl_WorkGroupSize.x) {
    const uint key = min(first + i, keys - 1);
    shared_pos[i] = I32(p.kv_pos).v[key];
    shared_slot[i] = i < kKeys && first + i < keys ? I32(p.kv_slot).v[key] : -1;
  }
  if (me == 0) shared_seen = 0;
}

// The probabilities of a pair and the gradients of its scores, for the keys of one part.
void Gradients(uint pair, uint place, uint part) {
  const uint row = pair / kGroup, head = first_head + pair % kGroup;
  const int pos = I32(p.q_pos).v[row], slot = I32(p.q_slot).v[row];
  bool some = false;
  for (uint j = 0; j < kKeyQuads * 4; ++j) {
    some = some || SeesKey(pos, slot, shared_pos[j], shared_slot[j]);
  }
  if (part == 0) shared_sees[place] = some ? 1 : 0;
  if (!some) return;
  shared_seen = pair + 1;
  uint at_key[kPartKeys];
  float score[kPartKeys], product[kPartKeys];
  for (uint n = 0; n < kPartKeys; ++n) {
    at_key[n] = min(n * kParts + part, kKeys - 1) * kStride;
    score[n] = product[n] = 0.0;
  }
  float mean = 0.0;
  const uint first = (row * kHeads + head) * kQuads;
  for (uint i = 0; i < kQuads; ++i) {
    const vec4 q = F32x4(p.q).v[first + i], dy = F32x4(p.dy).v[first + i];
    mean += dot(dy, F32x4(p.y).v[first + i]);
    for (uint n = 0; n < kPartKeys; ++n) {
      score[n] += dot(q, shared_k[at_key[n] + i]);
      product[n] += dot(dy, shared_v[at_key[n] + i]);
    }
  }
  const float lse = F32(p.lse).v[row * kHeads + head];
  for (uint n = 0; n < kPartKeys; ++n) {
    const uint j = n * kParts + part;
    if (j >= kKeyQuads * 4) continue;
    const bool sees = SeesKey(pos, slot, shared_pos[j], shared_slot[j]);
    const float probability = sees ? Exp(score[n] * kScale - lse) : 0.0;
    shared_probability[place * kKeyQuads + j / 4][j % 4] = probability;
    shared_gradient[place * kKeyQuads + j / 4][j % 4] = kScale * probability * (product[n] - mean);
  }
}

void Keys(uint first, uint kv_head, uint keys, uint rows) {
  first_head = kv_head * kGroup;
  barrier();
  LoadKeys(first, kv_head, keys);
  vec4 dk[kKeyQuads * kDims], dv[kKeyQuads * kDims];  // four keys each
  for (uint i = 0; i < kKeyQuads * kDims; ++i) dk[i] = dv[i] = vec4(0.0);
  const uint pairs = rows * kGroup;
  for (uint tile = 0; tile < pairs; tile += kTile) {
    const uint count = min(kTile, pairs - tile);
    barrier();
    for (uint i = me; i < count * kParts; i += gl_WorkGroupSize.x) {
      Gradients(tile + i / kParts, i / kParts, i % kParts);
    }
    barrier();
    if (shared_seen <= tile) continue;
    for (uint i = 0; i < count; ++i) {
      if (shared_sees[i] == 0) continue;
      const uint pair = tile + i;
      const uint at = (pair / kGroup * kHeads + first_head + pair % kGroup) * kDim;
      for (uint e = 0; e < kDims; ++e) {
        const uint d = me + e * gl_WorkGroupSize.x;
        if (d >= kDim) continue;
        const vec4 q = vec4(F32(p.q).v[at + d]), dy = vec4(F32(p.dy).v[at + d]);
        for (uint n = 0; n < kKeyQuads; ++n) {
          const uint sum = n * kDims + e, of_pair = i * kKeyQuads + n;
          dk[sum] = fma(shared_gradient[of_pair], q, dk[sum]);
          dv[sum] = fma(shared_probability[of_pair], dy, dv[sum]);
        }
      }
    }
  }
  for (uint j = 0; j < kKeys && first + j < keys; ++j) {
    for (uint e = 0; e < kDims; ++e) {
      const uint d = me + e * gl_WorkGroupSize.x;
      if (d >= kDim) continue;
      const uint at = ((first + j) * kKvHeads + kv_head) * kDim + d;
      F32(p.result).v[at] = dk[j / 4 * kDims + e][j % 4];
      F32(p.dv).v[at] = dv[j / 4 * kDims + e][j % 4];
    }
  }
}

void main() {
  me = gl_LocalInvocationID.x;
  const uint rows = At(p.rows, Step(p.step)), keys = At(p.keys, Step(p.step));
  const uint tiles = (keys + kKeys - 1) / kKeys;
  for (uint item = GROUP.x; item < tiles * kKvHeads; item += GROUPS.x) {
    Keys(item / kKvHeads * kKeys, item % kKvHeads, keys, rows);
  }
}
