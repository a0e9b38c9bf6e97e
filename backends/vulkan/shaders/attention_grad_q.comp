#version 460
// The derivative by the queries of attention over fresh rows. A workgroup takes a query row and up
// to 4 heads that share a kv head, and the keys in tiles: first an invocation has a key and its
// scores, then dimensions and sums over the keys of the tile, in their order.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_grad_q.args.glsl"
#include "math.kernel"
#include "fresh_keys.glsl"

const uint kTile = 64;                                                    // keys
const uint kDims = (kDim + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;  // of an invocation

shared vec4 shared_q[kGroup * kQuads];
shared vec4 shared_dy[kGroup * kQuads];
shared float shared_mean[kGroup];
shared float shared_gradient[kGroup * kTile];  // of the scores
shared uint shared_some;                       // whether the row sees a key of the tile

uint me;

// The gradients of the scores of a key, 0 if the row does not see it.
void Gradients(uint row, uint first_head, uint key, uint place, bool sees) {
  const uint kv_head = first_head / (kHeads / kKvHeads);
  float score[kGroup], product[kGroup];
  for (uint h = 0; h < kGroup; ++h) score[h] = product[h] = 0.0;
  if (sees) {
    for (uint i = 0; i < kQuads; ++i) {
      const uint at = (key * kKvHeads + kv_head) * kQuads + i;
      const vec4 k = F32x4(p.k).v[at], v = F32x4(p.v).v[at];
      for (uint h = 0; h < kGroup; ++h) {
        score[h] += dot(shared_q[h * kQuads + i], k);
        product[h] += dot(shared_dy[h * kQuads + i], v);
      }
    }
  }
  for (uint h = 0; h < kGroup; ++h) {
    const float lse = F32(p.lse).v[row * kHeads + first_head + h];
    const float probability = sees ? Exp(score[h] * kScale - lse) : 0.0;
    shared_gradient[h * kTile + place] = kScale * probability * (product[h] - shared_mean[h]);
  }
}

void Group(uint row, uint first_head, uint keys) {
  const uint kv_head = first_head / (kHeads / kKvHeads);
  const uint first = (row * kHeads + first_head) * kQuads;
  const int pos = I32(p.q_pos).v[row], slot = I32(p.q_slot).v[row];
  barrier();
  for (uint i = me; i < kGroup * kQuads; i += gl_WorkGroupSize.x) {
    shared_q[i] = F32x4(p.q).v[first + i];
    shared_dy[i] = F32x4(p.dy).v[first + i];
  }
  barrier();
  for (uint h = me; h < kGroup; h += gl_WorkGroupSize.x) {
    float mean = 0.0;
    for (uint i = 0; i < kQuads; ++i) {
      mean += dot(shared_dy[h * kQuads + i], F32x4(p.y).v[first + h * kQuads + i]);
    }
    shared_mean[h] = mean;
  }
  float sums[kGroup * kDims];
  for (uint i = 0; i < kGroup * kDims; ++i) sums[i] = 0.0;
  for (uint tile = 0; tile < keys; tile += kTile) {
    barrier();
    if (me == 0) shared_some = 0;
    barrier();
    for (uint i = me; i < kTile; i += gl_WorkGroupSize.x) {
      const uint key = tile + i;
      const bool sees =
          key < keys && SeesKey(pos, slot, I32(p.kv_pos).v[key], I32(p.kv_slot).v[key]);
      if (sees) shared_some = 1;
      Gradients(row, first_head, key, i, sees);
    }
    barrier();
    if (shared_some == 0) continue;
    const uint count = min(kTile, keys - tile);
    for (uint i = 0; i < count; ++i) {
      const uint at = ((tile + i) * kKvHeads + kv_head) * kDim;
      for (uint e = 0; e < kDims; ++e) {
        const uint d = me + e * gl_WorkGroupSize.x;
        if (d >= kDim) continue;
        const float k = F32(p.k).v[at + d];
        for (uint h = 0; h < kGroup; ++h) {
          sums[h * kDims + e] = fma(shared_gradient[h * kTile + i], k, sums[h * kDims + e]);
        }
      }
    }
  }
  for (uint h = 0; h < kGroup; ++h) {
    for (uint e = 0; e < kDims; ++e) {
      const uint d = me + e * gl_WorkGroupSize.x;
      if (d < kDim)
        F32(p.result).v[(row * kHeads + first_head + h) * kDim + d] = sums[h * kDims + e];
    }
  }
}

void main() {
  me = gl_LocalInvocationID.x;
  const uint rows = At(p.rows, Step(p.step)), keys = At(p.keys, Step(p.step));
  const uint groups = kHeads / kGroup;
  for (uint item = GROUP.x; item < rows * groups; item += GROUPS.x) {
    Group(item / groups, item % groups * kGroup, keys);
  }
}
