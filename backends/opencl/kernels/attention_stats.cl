// The logarithms of the sums of exponentials of attention over fresh rows. A work-group takes a
// query row and up to 8 heads that share a kv head; each work-item takes every n-th key.
#include "common.cl"
#include "attention_stats.args"
#include "math.kernel"
#include "fresh_keys.cl"

#define kLowest -3.4e38f

KERNEL(attention_stats) {
  __local float4 shared_q[kGroup * kQuads];
  __local float shared_most[kGroup * THREADS];
  __local float shared_sum[kGroup * THREADS];
  const uint rows = ROWS_OF(rows), keys = ROWS_OF(keys);
  const uint groups = kHeads / kGroup;
  for (uint item = GROUP; item < rows * groups; item += GROUPS) {
    const uint row = item / groups, first_head = item % groups * kGroup;
    const uint kv_head = first_head / (kHeads / kKvHeads);
    const int pos = AT(int, q_pos)[row], slot = AT(int, q_slot)[row];
    BARRIER();
    FOR_MINE(i, kGroup * kQuads) {
      shared_q[i] = AT(const float4, q)[(size_t)(row * kHeads + first_head) * kQuads + i];
    }
    BARRIER();
    float most[kGroup], sum[kGroup];
    for (uint h = 0; h < kGroup; ++h) {
      most[h] = kLowest;
      sum[h] = 0.0f;
    }
    FOR_MINE(key, keys) {
      if (!SeesKey(pos, slot, AT(int, kv_pos)[key], AT(int, kv_slot)[key])) continue;
      float score[kGroup];
      for (uint h = 0; h < kGroup; ++h) score[h] = 0.0f;
      for (uint i = 0; i < kQuads; ++i) {
        const float4 k = AT(const float4, k)[(size_t)(key * kKvHeads + kv_head) * kQuads + i];
        for (uint h = 0; h < kGroup; ++h) score[h] += dot(shared_q[h * kQuads + i], k);
      }
      for (uint h = 0; h < kGroup; ++h) {
        const float s = score[h] * kScale;
        const float larger = fmax(most[h], s);
        sum[h] = sum[h] * Exp(most[h] - larger) + Exp(s - larger);
        most[h] = larger;
      }
    }
    for (uint h = 0; h < kGroup; ++h) {
      shared_most[h * THREADS + ME] = most[h];
      shared_sum[h * THREADS + ME] = sum[h];
    }
    BARRIER();
    FOR_MINE(h, kGroup) {
      float largest = kLowest, total = 0.0f;
      for (uint i = 0; i < THREADS; ++i) largest = fmax(largest, shared_most[h * THREADS + i]);
      for (uint i = 0; i < THREADS; ++i) {
        const uint at = h * THREADS + i;
        if (shared_sum[at] > 0.0f) total += shared_sum[at] * Exp(shared_most[at] - largest);
      }
      AT(float, result)
      [(size_t)row * kHeads + first_head + h] = total > 0.0f ? largest + Log(total) : 0.0f;
    }
  }
}
