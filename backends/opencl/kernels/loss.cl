// One work-group for each row of logits: the cross entropy of its target, or the derivative.
#include "common.cl"
#include "loss.args"
#include "math.kernel"
#include "reduce.cl"

// Softmax statistics: the maximum (0 in a row of only -infinity), the sum of exponentials (0 in
// such a row), and whether both are numbers.
typedef struct {
  float shift, sum;
  bool plain;
} Parts;

Parts PartsOfSoftmax(__global const float* x, uint columns, __local float* shared) {
  float most = -kInfinity, bad = 0.0f;
  FOR_MINE(i, columns) {
    if (IsNan(x[i]) || x[i] == kInfinity) {
      bad = 1.0f;
    } else {
      most = fmax(most, x[i]);
    }
  }
  Parts parts;
  most = GroupMax(most, shared);
  parts.plain = GroupMax(bad, shared) == 0.0f;
  parts.shift = most == -kInfinity ? 0.0f : most;
  // Sums of sums of 32, which round less than one.
  float sum = 0.0f, part = 0.0f;
  uint terms = 0;
  FOR_MINE(i, columns) {
    part += Exp(x[i] - parts.shift);
    if (++terms % 32 != 0) continue;
    sum += part;
    part = 0.0f;
  }
  parts.sum = GroupSum(sum + part, shared);
  return parts;
}

// ln(sum) + (max - logit), in this order: the logarithm is small beside both.
float Loss(Parts parts, float logit) {
  if (!parts.plain) return kNan;
  if (parts.sum == 0.0f || logit == -kInfinity) return kInfinity;
  const float distance = parts.shift - logit;
  return Log(parts.sum) + distance;
}

KERNEL(loss) {
  __local float shared[THREADS];
  const uint count = ROWS_OF(rows), columns = push.columns;
  for (uint row = GROUP; row < count; row += GROUPS) {
    const size_t first = (size_t)row * columns;
    __global const float* x = AT(float, x) + first;
    const int target = AT(int, targets)[row];
    const bool counts = target >= 0 && (uint)target < columns;
    Parts parts = {0.0f, 1.0f, true};
    if (counts) parts = PartsOfSoftmax(x, columns, shared);
#if kOp == kLoss
    if (ME == 0) AT(float, y)[row] = counts ? Loss(parts, x[target]) : 0.0f;
#else
    __global float* y = AT(float, y) + first;
    const float factor = AT(float, factor)[0];
    const float divisor = parts.sum == 0.0f ? 1.0f : parts.sum;
    FOR_MINE(i, columns) {
      float value = 0.0f;
      if (counts) {
        value = Exp(x[i] - parts.shift) / divisor;
        value = factor * (i == (uint)target ? value - 1.0f : value);
        if (!parts.plain) value = kNan;
      }
      y[i] = value;
    }
#endif
  }
}
