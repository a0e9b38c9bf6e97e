// A sum for each work-group: of the squares of its elements, or of its elements.
#include "common.cl"
#include "sum_squares.args"
#include "reduce.cl"

KERNEL(sum_squares) {
  __local float shared[THREADS];
  __global const float* x = AT(float, x);
  // Sums of sums of 32, which round less than one.
  float sum = 0.0f, part = 0.0f;
  uint terms = 0;
  FOR_EACH(i, ROWS_OF(rows) * push.inner) {
    part += kSquare ? x[i] * x[i] : x[i];
    if (++terms % 32 != 0) continue;
    sum += part;
    part = 0.0f;
  }
  sum = GroupSum(sum + part, shared);
  if (ME == 0) AT(float, y)[GROUP] = sum;
}
