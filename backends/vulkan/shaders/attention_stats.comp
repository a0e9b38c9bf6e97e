#version 460
// The logarithms of the sums of exponentials of attention over fresh rows. A workgroup takes a
// query row and up to 8 heads that share a kv head; each invocation takes every n-th key.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_stats.args.glsl"
#include "math.kernel"
#include "fresh_keys.glsl"

const float kLowest = -3.4e38;

shared vec4 shared_q[kGroup * kQuads];
shared float shared_most[kGroup * gl_WorkGroupSize.x];
shared float shared_sum[kGroup * gl_WorkGroupSize.x];

void Group(uint row, uint first_head, uint keys) {
  const uint me = gl_LocalInvocationID.x;
  const uint kv_head = first_head / (kHeads / kKvHeads);
  const int pos = I32(p.q_pos).v[row], slot = I32(p.q_slot).v[row];
  barrier();
  for (uint i = me; i < kGroup * kQuads; i += gl_WorkGroupSize.x) {
    shared_q[i] = F32x4(p.q).v[(row * kHeads + first_head) * kQuads + i];
  }
  barrier();
  float most[kGroup], sum[kGroup];
  for (uint h = 0; h < kGroup; ++h) {
    most[h] = kLowest;
    sum[h] = 0.0;
  }
  for (uint key = me; key < keys; key += gl_WorkGroupSize.x) {
    if (!SeesKey(pos, slot, I32(p.kv_pos).v[key], I32(p.kv_slot).v[key])) continue;
    float score[kGroup];
    for (uint h = 0; h < kGroup; ++h) score[h] = 0.0;
    for (uint i = 0; i < kQuads; ++i) {
      const vec4 k = F32x4(p.k).v[(key * kKvHeads + kv_head) * kQuads + i];
      for (uint h = 0; h < kGroup; ++h) score[h] += dot(shared_q[h * kQuads + i], k);
    }
    for (uint h = 0; h < kGroup; ++h) {
      const float s = score[h] * kScale;
      const float larger = max(most[h], s);
      sum[h] = sum[h] * Exp(most[h] - larger) + Exp(s - larger);
      most[h] = larger;
    }
  }
  for (uint h = 0; h < kGroup; ++h) {
    shared_most[h * gl_WorkGroupSize.x + me] = most[h];
    shared_sum[h * gl_WorkGroupSize.x + me] = sum[h];
  }
  barrier();
  for (uint h = me; h < kGroup; h += gl_WorkGroupSize.x) {
    float largest = kLowest, total = 0.0;
    for (uint i = 0; i < gl_WorkGroupSize.x; ++i) {
      largest = max(largest, shared_most[h * gl_WorkGroupSize.x + i]);
    }
    for (uint i = 0; i < gl_WorkGroupSize.x; ++i) {
      const uint at = h * gl_WorkGroupSize.x + i;
      if (shared_sum[at] > 0.0) total += shared_sum[at] * Exp(shared_most[at] - largest);
    }
    F32(p.result).v[row * kHeads + first_head + h] = total > 0.0 ? largest + Log(total) : 0.0;
  }
}

void main() {
  const uint rows = At(p.rows, Step(p.step)), keys = At(p.keys, Step(p.step));
  const uint groups = kHeads / kGroup;
  for (uint item = GROUP.x; item < rows * groups; item += GROUPS.x) {
    Group(item / groups, item % groups * kGroup, keys);
  }
}
