// The k largest values of each part of each row, descending, equal ones by ascending index. One
// work-group for each part: a radix search finds the k-th largest key; what is above it and the
// first of its equals are collected and sorted (bitonic, by key descending, then index).
#include "common.cl"
#include "topk.args"
#include "order.kernel"
#include "sort.cl"
#define Summed uint
#include "prefix_sum.cl"

// Leaves the k-th largest key in found[0], and in found[1] how many of the elements that have it
// belong to the list.
void FindThreshold(__global const float* x, uint columns, uint k, __local uint* count,
                   __local uint* found) {
  if (ME == 0) {
    found[0] = 0;
    found[1] = k;
  }
  UNROLL for (int shift = 24; shift >= 0; shift -= 8) {
    FOR_MINE(i, 256u) count[i] = 0;
    BARRIER();
    const uint prefix = found[0], mask = shift == 24 ? 0u : 0xFFFFFFFFu << (shift + 8);
    FOR_MINE(i, columns) {
      const uint key = KeyOf(x[i]);
      if ((key & mask) == prefix) atomic_inc(&count[(key >> shift) & 255u]);
    }
    BARRIER();
    if (ME == 0) {
      uint digit = 255, above = 0;
      while (above + count[digit] < found[1]) above += count[digit--];
      found[0] = prefix | (digit << shift);
      found[1] -= above;
    }
    BARRIER();
  }
}

KERNEL(topk) {
  LIST();
  __local uint shared_count[256];
  __local uint shared_found[2];
  __local uint shared_sum[THREADS];
  const uint count = ROWS_OF(rows) * push.parts, k = push.k;
  for (uint group = GROUP; group < count; group += GROUPS) {
    LIST_AT(group);
    const uint offset = group % push.parts * push.share;
    const size_t first = (size_t)(group / push.parts) * push.columns + offset;
    const uint columns = min(push.share, push.columns - offset);
    __global const float* x = AT(float, x) + first;
    FindThreshold(x, columns, k, shared_count, shared_found);
    const uint threshold = shared_found[0], equals = shared_found[1];
    // Each work-item takes a run of consecutive columns, so that equal keys keep their order.
    const uint share = (columns + THREADS - 1) / THREADS;
    const uint begin = min(ME * share, columns), end = min(begin + share, columns);
    uint above = 0, same = 0;
    for (uint i = begin; i < end; ++i) {
      const uint key = KeyOf(x[i]);
      above += key > threshold ? 1 : 0;
      same += key == threshold ? 1 : 0;
    }
    uint all;
    uint at = PrefixSum(above, &all, shared_sum);
    uint rank = PrefixSum(same, &all, shared_sum);
    for (uint i = begin; i < end; ++i) {
      const uint key = KeyOf(x[i]);
      if (key > threshold) list[at++] = (uint2)(key, i);
      if (key == threshold) {
        if (rank < equals) list[k - equals + rank] = (uint2)(key, i);
        ++rank;
      }
    }
    for (uint i = k + ME; i < push.room; i += THREADS) list[i] = (uint2)(0, 0xFFFFFFFFu);
    BARRIER();
    Sort(list, push.room);
    FOR_MINE(i, k) {
      const uint2 entry = list[i];
      AT(float, values)[(size_t)group * k + i] = ValueOf(entry.x);
      AT(uint, indices)
      [(size_t)group * k + i] = IS_NULL(ids) ? offset + entry.y : AT(uint, ids)[first + entry.y];
    }
    BARRIER();
  }
}
