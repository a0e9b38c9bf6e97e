// One work-group for each row of the last dimension: the derivatives of softmax and rms_norm.
#include "common.cl"
#include "row_grad.args"
#include "reduce.cl"

// Neither 0 nor below every normal number; NaN is something.
#define HAS_MASS(y) ((as_uint(y) & 0x7FFFFFFFu) >= 0x00800000u)

KERNEL(row_grad) {
  __local float shared[THREADS];
  const uint count = ROWS_OF(rows), columns = push.columns;
  for (uint row = GROUP; row < count; row += GROUPS) {
    const size_t first = (size_t)row * columns;
    __global const float* x = AT(float, x) + first;
    __global const float* dy = AT(float, dy) + first;
    __global float* dx = AT(float, dx) + first;
#if kOp == kSoftmaxGrad
    float sum = 0.0f;
    FOR_MINE(i, columns) {
      if (HAS_MASS(x[i])) sum += x[i] * dy[i];
    }
    sum = GroupSum(sum, shared);
    FOR_MINE(i, columns) dx[i] = HAS_MASS(x[i]) ? x[i] * (dy[i] - sum) : 0.0f;
#else
    // r (g - x r^2 mean(g x)) with g = dy weight
    const bool weighted = !IS_NULL(weight);
    __global const float* weight = AT(float, weight);
    float products = 0.0f;
    FOR_MINE(i, columns) products += (weighted ? dy[i] * weight[i] : dy[i]) * x[i];
    const float n = (float)columns;
    const float squares = GroupSum(MySum(x, columns, true), shared);
    const float r = 1.0f / sqrt(squares / n + push.eps);
    const float share = r * r * (GroupSum(products, shared) / n);
    FOR_MINE(i, columns) { dx[i] = r * ((weighted ? dy[i] * weight[i] : dy[i]) - x[i] * share); }
#endif
  }
}
