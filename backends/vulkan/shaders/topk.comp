#version 460
// The k largest values of each part of each row, descending, equal ones by ascending index. One
// workgroup for each part: a radix search finds the k-th largest key; what is above it and the
// first of its equals are collected and sorted (bitonic, by key descending, then index). The list
// is in shared memory if it fits, else in `list`.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "topk.args.glsl"
#include "order.kernel"
#define Summed uint
#include "prefix_sum.glsl"

#include "sort.glsl"

shared uint shared_count[256];
shared uint shared_prefix, shared_left;
uint first, columns;  // of the part

uint Key(uint i) { return KeyOf(F32(p.x).v[first + i]); }

// The k-th largest key; `equals` of the elements that have it belong to the list.
uint Threshold(out uint equals) {
  uint prefix = 0, mask = 0;
  uint left = p.k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    barrier();
    for (uint i = me; i < 256; i += size) shared_count[i] = 0;
    barrier();
    for (uint i = me; i < columns; i += size) {
      const uint key = Key(i);
      if ((key & mask) == prefix) atomicAdd(shared_count[(key >> shift) & 255u], 1);
    }
    barrier();
    if (me == 0) {
      uint digit = 255, above = 0;
      while (above + shared_count[digit] < left) above += shared_count[digit--];
      shared_prefix = prefix | (digit << shift);
      shared_left = left - above;
    }
    barrier();
    prefix = shared_prefix;
    left = shared_left;
    mask |= 0xFFu << shift;
  }
  equals = left;
  return prefix;
}

// Each invocation takes a run of consecutive columns, so that equal keys keep their order.
void Collect(uint threshold, uint equals) {
  const uint share = (columns + size - 1) / size;
  const uint begin = min(me * share, columns), end = min(begin + share, columns);
  uint above = 0, same = 0;
  for (uint i = begin; i < end; ++i) {
    const uint key = Key(i);
    above += key > threshold ? 1 : 0;
    same += key == threshold ? 1 : 0;
  }
  uint all;
  uint at = PrefixSum(above, all);
  uint rank = PrefixSum(same, all);
  const uint total_above = p.k - equals;
  for (uint i = begin; i < end; ++i) {
    const uint key = Key(i);
    if (key > threshold) Put(at++, uvec2(key, i));
    if (key == threshold) {
      if (rank < equals) Put(total_above + rank, uvec2(key, i));
      ++rank;
    }
  }
  for (uint i = p.k + me; i < p.room; i += size) Put(i, uvec2(0, 0xFFFFFFFFu));
  Sync();
}

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.parts;
  for (uint group = GROUP.x; group < count; group += GROUPS.x) {
    const uint offset = group % p.parts * p.share;
    first = group / p.parts * p.columns + offset;
    columns = min(p.share, p.columns - offset);
    list_first = group * p.room;
    uint equals;
    const uint threshold = Threshold(equals);
    Collect(threshold, equals);
    Sort();
    for (uint i = me; i < p.k; i += size) {
      const uvec2 entry = Get(i);
      F32(p.values).v[group * p.k + i] = ValueOf(entry.x);
      U32(p.indices).v[group * p.k + i] =
          IsNull(p.ids) ? offset + entry.y : U32(p.ids).v[first + entry.y];
    }
    Sync();
  }
}
