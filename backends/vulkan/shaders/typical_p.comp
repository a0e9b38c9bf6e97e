#version 460
// Locally typical sampling: columns in the order of |surprise - entropy| stay while the mass before
// them is below p. One workgroup for each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "typical_p.args.glsl"
#include "math.kernel"
#include "order.kernel"
#include "reduce.glsl"
#define Summed float
#include "prefix_sum.glsl"

#include "sort.glsl"

uint first;

float X(uint i) {
  const float x = F32(p.x).v[first + i];
  return IsNan(x) ? -kInfinity : x;
}

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    first = row * p.columns;
    list_first = row * p.room;
    float most = -kInfinity;
    for (uint i = me; i < p.columns; i += size) most = max(most, X(i));
    most = WorkgroupMax(most);
    if (most == -kInfinity || p.top_p >= 1.0) {
      for (uint i = me; i < p.columns; i += size) F32(p.y).v[first + i] = X(i);
      continue;
    }
    float sum = 0.0, weighted = 0.0;
    for (uint i = me; i < p.columns; i += size) {
      const float z = X(i) - most;
      const float e = Exp(z);
      sum += e;
      if (e > 0.0) weighted += e * z;
    }
    sum = WorkgroupSum(sum);
    weighted = WorkgroupSum(weighted);
    // -ln prob - H = (ln S - z) - (ln S - W / S)
    const float mean = weighted / sum;
    for (uint i = me; i < p.room; i += size) {
      uint key = 0;
      if (i < p.columns) {
        const float x = X(i);
        key = ~KeyOf(x == -kInfinity ? kInfinity : abs(mean - (x - most)));
      }
      Put(i, uvec2(key, i));
    }
    Sync();
    Sort();
    const uint share = (p.columns + size - 1) / size;
    const uint begin = min(me * share, p.columns), end = min(begin + share, p.columns);
    float part = 0.0;
    for (uint i = begin; i < end; ++i) part += Exp(X(Get(i).y) - most);
    float all;
    float running = PrefixSum(part, all);
    for (uint i = begin; i < end; ++i) {
      const uint column = Get(i).y;
      const float x = X(column);
      const bool kept = i == 0 || running < p.top_p * sum;
      F32(p.y).v[first + column] = kept ? x : -kInfinity;
      running += Exp(x - most);
    }
    Sync();
  }
}
