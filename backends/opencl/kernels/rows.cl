// One work-group or subgroup for each row of the last dimension: norms, softmax, reductions,
// entropy.
#include "common.cl"
#include "rows.args"
#include "math.kernel"
#include "row_lanes.cl"

// The maximum, and whether some element is not a number: fmax() drops it.
float MaxOf(__global const float* x, uint columns, bool* has_nan, __local float* shared) {
  float most = -kInfinity;
  float nan = 0.0f;
  FOR_MINE(i, columns) {
    if (IsNan(x[i])) {
      nan = 1.0f;
    } else {
      most = fmax(most, x[i]);
    }
  }
  most = RowMax(most, shared);
  *has_nan = RowMax(nan, shared) > 0.0f;
  return most;
}

// This work-item's part of the sum of e^(x - most): sums of sums of 32, which round less than one.
float MyExps(__global const float* x, uint columns, float most) {
  float sum = 0.0f, part = 0.0f;
  uint terms = 0;
  FOR_MINE(i, columns) {
    part += Exp(x[i] - most);
    if (++terms % 32 != 0) continue;
    sum += part;
    part = 0.0f;
  }
  return sum + part;
}

void Softmax(__global const float* x, __global float* y, uint columns, __local float* shared) {
  bool has_nan;
  const float most = MaxOf(x, columns, &has_nan, shared);
  const bool is_plain = !has_nan && most != kInfinity && most != -kInfinity;
  const float sum = RowSum(is_plain ? MyExps(x, columns, most) : 0.0f, shared);
  const float other = has_nan || most == kInfinity ? kNan : 0.0f;
  FOR_MINE(i, columns) y[i] = is_plain ? Exp(x[i] - most) / sum : other;
}

// H = ln S - sum e^z z / S with z = x - max.
float Entropy(__global const float* x, uint columns, __local float* shared) {
  bool has_nan;
  const float most = MaxOf(x, columns, &has_nan, shared);
  float sum = 0.0f, weighted = 0.0f;
  FOR_MINE(i, columns) {
    const float z = x[i] - most;
    const float e = Exp(z);
    sum += e;
    if (e > 0.0f) weighted += e * z;
  }
  sum = RowSum(sum, shared);
  weighted = RowSum(weighted, shared);
  if (has_nan || most == kInfinity) return kNan;
  return most == -kInfinity ? 0.0f : Log(sum) - weighted / sum;
}

KERNEL(rows) {
  __local float shared[THREADS];
  const uint columns = push.columns;
  FOR_MY_ROWS(row, ROWS_OF(rows)) {
    const size_t first = (size_t)row * columns;
    __global const float* x = AT(float, x) + first;
    __global float* y = AT(float, y) + first;
#if kOp == kSoftmax
    Softmax(x, y, columns, shared);
#elif kOp == kEntropy
    const float entropy = Entropy(x, columns, shared);
    if (LANE == 0) AT(float, y)[row] = entropy;
#elif kOp == kMinP
    // eps is ln p
    bool has_nan;
    const float most = MaxOf(x, columns, &has_nan, shared);
    FOR_MINE(i, columns) {
      const bool kept = !IsNan(x[i]) && x[i] >= most + push.eps;
      y[i] = kept ? x[i] : -kInfinity;
    }
#elif kOp == kMax
    bool has_nan;
    const float most = MaxOf(x, columns, &has_nan, shared);
    if (LANE == 0) AT(float, y)[row] = has_nan ? kNan : most;
#elif kOp == kSum || kOp == kMean
    const float sum = RowSum(MySum(x, columns, false), shared);
    if (LANE == 0) AT(float, y)[row] = kOp == kMean ? sum / (float)columns : sum;
#else
    const float mean = RowSum(MySum(x, columns, true), shared) / (float)columns;
    const float factor = 1.0f / sqrt(mean + push.eps);
    const bool weighted = !IS_NULL(weight);
    __global const float* weight = AT(float, weight);
    const float scale = !IS_NULL(scale) ? AT(float, scale)[0] : 1.0f;
    float squares = 0.0f;
    FOR_MINE(i, columns) {
      float value = x[i] * factor;
      if (weighted) value *= weight[i];
#if kOp == kRmsNorm && kHalf
      AT(ushort, y)[first + i] = (ushort)FloatToHalf(value);
#else
      if (kOp != kRmsNorm) value = (AT(float, residual)[first + i] + value) * scale;
      y[i] = value;
      squares += value * value;
#endif
    }
#if kOp == kTwoNorms
    const float factor2 = 1.0f / sqrt(RowSum(squares, shared) / (float)columns + push.eps2);
    const bool weighted2 = !IS_NULL(weight2);
    FOR_MINE(i, columns) {
      float value = y[i] * factor2;  // this work-item's own
      if (weighted2) value *= AT(float, weight2)[i];
      AT(float, y2)[first + i] = value;
    }
#endif
#endif
  }
}
