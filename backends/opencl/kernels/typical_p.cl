// Locally typical sampling: columns in the order of |surprise - entropy| stay while the mass before
// them is below p. One work-group for each row.
#include "common.cl"
#include "typical_p.args"
#include "math.kernel"
#include "order.kernel"
#include "reduce.cl"
#include "sort.cl"
#define Summed float
#include "prefix_sum.cl"

float Logit(float x) { return IsNan(x) ? -kInfinity : x; }

KERNEL(typical_p) {
  LIST();
  __local float shared[THREADS];
  const uint count = ROWS_OF(rows), columns = push.columns;
  for (uint row = GROUP; row < count; row += GROUPS) {
    LIST_AT(row);
    __global const float* x = AT(float, x) + (size_t)row * columns;
    __global float* y = AT(float, y) + (size_t)row * columns;
    float most = -kInfinity;
    FOR_MINE(i, columns) most = fmax(most, Logit(x[i]));
    most = GroupMax(most, shared);
    if (most == -kInfinity || push.top_p >= 1.0f) {
      FOR_MINE(i, columns) y[i] = Logit(x[i]);
      continue;
    }
    float sum = 0.0f, weighted = 0.0f;
    FOR_MINE(i, columns) {
      const float z = Logit(x[i]) - most;
      const float e = Exp(z);
      sum += e;
      if (e > 0.0f) weighted += e * z;
    }
    sum = GroupSum(sum, shared);
    weighted = GroupSum(weighted, shared);
    // -ln prob - H = (ln S - z) - (ln S - W / S)
    const float mean = weighted / sum;
    FOR_MINE(i, push.room) {
      uint key = 0;
      if (i < columns) {
        const float z = Logit(x[i]);
        key = ~KeyOf(z == -kInfinity ? kInfinity : fabs(mean - (z - most)));
      }
      list[i] = (uint2)(key, i);
    }
    BARRIER();
    Sort(list, push.room);
    const uint share = (columns + THREADS - 1) / THREADS;
    const uint begin = min(ME * share, columns), end = min(begin + share, columns);
    float part = 0.0f;
    for (uint i = begin; i < end; ++i) part += Exp(Logit(x[list[i].y]) - most);
    float all;
    float running = PrefixSum(part, &all, shared);
    for (uint i = begin; i < end; ++i) {
      const uint column = list[i].y;
      const float z = Logit(x[column]);
      const bool kept = i == 0 || running < push.top_p * sum;
      y[column] = kept ? z : -kInfinity;
      running += Exp(z - most);
    }
    BARRIER();
  }
}
