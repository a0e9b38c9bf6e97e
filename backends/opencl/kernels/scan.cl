// Ops that need running sums along a row: cumsum, the nucleus mask, the draw of a category. One
// work-group for each row; each work-item takes a run of consecutive columns.
#include "common.cl"
#include "scan.args"
#include "math.kernel"
#include "reduce.cl"
#define Summed float
#include "prefix_sum.cl"

float Logit(float x) { return kOp != kCumSum && IsNan(x) ? -kInfinity : x; }
float Mass(float x, float most) {
  x = Logit(x);
  if (kOp == kCumSum) return x;
  return x == -kInfinity ? 0.0f : Exp(x - most);
}

KERNEL(scan) {
  __local float shared[THREADS];
  __local uint shared_first;
  __local int shared_last;
  const uint count = ROWS_OF(rows), columns = push.columns;
  const uint share = (columns + THREADS - 1) / THREADS;
  const uint begin = min(ME * share, columns), end = min(begin + share, columns);
  for (uint row = GROUP; row < count; row += GROUPS) {
    __global const float* x = AT(float, x) + (size_t)row * columns;
    float most = 0.0f;
    if (kOp != kCumSum) {
      most = -kInfinity;
      for (uint i = begin; i < end; ++i) most = fmax(most, Logit(x[i]));
      most = GroupMax(most, shared);
    }
    float sum = 0.0f;
    for (uint i = begin; i < end; ++i) sum += Mass(x[i], most);
    float total;
    float running = PrefixSum(sum, &total, shared);
#if kOp == kCategorical
    if (ME == 0) {
      shared_first = 0xFFFFFFFFu;
      shared_last = -1;
    }
    BARRIER();
    const float target = AT(float, u)[row] * total;
    bool found = false;
    for (uint i = begin; i < end && !found; ++i) {
      const float mass = Mass(x[i], most);
      running += mass;
      if (mass > 0.0f) {
        atomic_max(&shared_last, (int)i);
        found = running > target;
        if (found) atomic_min(&shared_first, i);
      }
    }
    BARRIER();
    // A run that found its column leaves later ones out of the last one, which then does not count.
    if (ME == 0) {
      AT(int, y)[row] = shared_first != 0xFFFFFFFFu ? (int)shared_first : shared_last;
    }
    BARRIER();
#else
    __global float* y = AT(float, y) + (size_t)row * columns;
    for (uint i = begin; i < end; ++i) {
      const float mass = Mass(x[i], most);
      if (kOp == kCumSum) {
        running += mass;
        y[i] = running;
      } else {
        const bool kept = i == 0 || push.top_p >= 1.0f || running < push.top_p * total;
        y[i] = kept ? Logit(x[i]) : -kInfinity;
        running += mass;
      }
    }
#endif
  }
}
