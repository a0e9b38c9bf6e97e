#version 460
// The derivatives by the keys and values of attention over fresh rows. A workgroup takes a few keys
// of a kv head and the pairs of a query row and a head in tiles: first an invocation has a pair and
// its scores, then dimensions and sums over the pairs of the tile, in their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_grad_kv.args.glsl"
#include "math.kernel"
#include "fresh_keys.glsl"

const uint kTile = 64;                                                    // pairs
const uint kDims = (kDim + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;  // of an invocation

shared vec4 shared_k[kKeys * kQuads];
shared vec4 shared_v[kKeys * kQuads];
shared int shared_pos[kKeys];
shared int shared_slot[kKeys];  // -1: no such key
shared float shared_probability[kTile * kKeys];
shared float shared_gradient[kTile * kKeys];  // of the scores
shared uint shared_sees[kTile];               // whether the pair sees one of the keys

uint me;
uint first_head;  // of the kv head

void LoadKeys(uint first, uint kv_head, uint keys) {
  for (uint i = me; i < kKeys * kQuads; i += gl_WorkGroupSize.x) {
    const uint key = min(first + i / kQuads, keys - 1);
    const uint at = (key * kKvHeads + kv_head) * kQuads + i % kQuads;
    shared_k[i] = F32x4(p.k).v[at];
    shared_v[i] = F32x4(p.v).v[at];
  }
  for (uint i = me; i < kKeys; i += gl_WorkGroupSize.x) {
    const uint key = min(first + i, keys - 1);
    shared_pos[i] = I32(p.kv_pos).v[key];
    shared_slot[i] = first + i < keys ? I32(p.kv_slot).v[key] : -1;
  }
}

// The probabilities of a pair and the gradients of its scores.
void Gradients(uint pair, uint place) {
  const uint row = pair / kGroup, head = first_head + pair % kGroup;
  const int pos = I32(p.q_pos).v[row], slot = I32(p.q_slot).v[row];
  bool sees[kKeys];
  bool some = false;
  float score[kKeys], product[kKeys];
  for (uint j = 0; j < kKeys; ++j) {
    sees[j] = SeesKey(pos, slot, shared_pos[j], shared_slot[j]);
    some = some || sees[j];
    score[j] = product[j] = 0.0;
  }
  shared_sees[place] = some ? 1 : 0;
  if (!some) return;
  float mean = 0.0;
  for (uint i = 0; i < kQuads; ++i) {
    const uint at = (row * kHeads + head) * kQuads + i;
    const vec4 q = F32x4(p.q).v[at], dy = F32x4(p.dy).v[at];
    mean += dot(dy, F32x4(p.y).v[at]);
    for (uint j = 0; j < kKeys; ++j) {
      score[j] += dot(q, shared_k[j * kQuads + i]);
      product[j] += dot(dy, shared_v[j * kQuads + i]);
    }
  }
  const float lse = F32(p.lse).v[row * kHeads + head];
  for (uint j = 0; j < kKeys; ++j) {
    const float probability = sees[j] ? Exp(score[j] * kScale - lse) : 0.0;
    shared_probability[place * kKeys + j] = probability;
    shared_gradient[place * kKeys + j] = kScale * probability * (product[j] - mean);
  }
}

void Keys(uint first, uint kv_head, uint keys, uint rows) {
  first_head = kv_head * kGroup;
  barrier();
  LoadKeys(first, kv_head, keys);
  float dk[kKeys * kDims], dv[kKeys * kDims];
  for (uint i = 0; i < kKeys * kDims; ++i) dk[i] = dv[i] = 0.0;
  const uint pairs = rows * kGroup;
  for (uint tile = 0; tile < pairs; tile += kTile) {
    const uint count = min(kTile, pairs - tile);
    barrier();
    for (uint i = me; i < count; i += gl_WorkGroupSize.x) Gradients(tile + i, i);
    barrier();
    for (uint i = 0; i < count; ++i) {
      if (shared_sees[i] == 0) continue;
      const uint pair = tile + i;
      const uint at = (pair / kGroup * kHeads + first_head + pair % kGroup) * kDim;
      for (uint e = 0; e < kDims; ++e) {
        const uint d = me + e * gl_WorkGroupSize.x;
        if (d >= kDim) continue;
        const float q = F32(p.q).v[at + d], dy = F32(p.dy).v[at + d];
        for (uint j = 0; j < kKeys; ++j) {
          const uint sum = j * kDims + e;
          dk[sum] = fma(shared_gradient[i * kKeys + j], q, dk[sum]);
          dv[sum] = fma(shared_probability[i * kKeys + j], dy, dv[sum]);
        }
      }
    }
  }
  for (uint j = 0; j < kKeys && first + j < keys; ++j) {
    for (uint e = 0; e < kDims; ++e) {
      const uint d = me + e * gl_WorkGroupSize.x;
      if (d >= kDim) continue;
      const uint at = ((first + j) * kKvHeads + kv_head) * kDim + d;
      F32(p.result).v[at] = dk[j * kDims + e];
      F32(p.dv).v[at] = dv[j * kDims + e];
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
