// One work-group for each row of logits: the cross entropy of its target, the derivative, or both.
#include "common.cl"
#include "loss.args"
#include "math.kernel"
#include "reduce.cl"

// A logit; `cap`: of its soft-cap, if that is to be applied.
float Logit(float x, float cap) {
#if kOp == kHead
  if (cap > 0.0f && !IsNan(x)) return cap * Tanh(x / cap);
#endif
  return x;
}

// Softmax statistics: the maximum (0 in a row of only -infinity), the sum of exponentials (0 in
// such a row), and whether both are numbers.
typedef struct {
  float shift, sum;
  bool plain;
} Parts;

Parts PartsOfSoftmax(__global const float* x, uint columns, float cap, __local float* shared) {
  float most = -kInfinity, bad = 0.0f;
  FOR_MINE(i, columns) {
    const float logit = Logit(x[i], cap);
    if (IsNan(logit) || logit == kInfinity) {
      bad = 1.0f;
    } else {
      most = fmax(most, logit);
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
    part += Exp(Logit(x[i], cap) - parts.shift);
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
    if (counts) parts = PartsOfSoftmax(x, columns, push.cap, shared);
#if kOp == kLoss
    if (ME == 0) AT(float, y)[row] = counts ? Loss(parts, x[target]) : 0.0f;
#else
    __global float* y = AT(float, y) + first;
    const float factor = AT(float, factor)[0];
    const float divisor = parts.sum == 0.0f ? 1.0f : parts.sum;
    FOR_MINE(i, columns) {
      float value = 0.0f;
      if (counts) {
        const float logit = Logit(x[i], push.cap);
        value = Exp(logit - parts.shift) / divisor;
        value = factor * (i == (uint)target ? value - 1.0f : value);
#if kOp == kHead
        // y may be x: this work-item alone reads the logit of the target from here on.
        if (i == (uint)target) AT(float, loss)[row] = Loss(parts, logit);
        if (push.cap > 0.0f) value *= 1.0f - logit / push.cap * (logit / push.cap);
#endif
        if (!parts.plain) value = kNan;
      }
      y[i] = value;
    }
#if kOp == kHead
    if (ME == 0 && !counts) AT(float, loss)[row] = 0.0f;
#endif
#endif
  }
}
