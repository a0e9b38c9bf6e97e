// y = the sum of `parts` tensors that follow each other, in order.
#include "common.cl"
#include "sum_parts.args"

KERNEL sum_parts(ARGUMENTS) {
  const uint total = ROWS_OF(rows) * push.n;
  FOR_EACH(i, total) {
    float sum = 0.0f;
    for (uint part = 0; part < push.parts; ++part) sum += AT(float, x)[(size_t)part * total + i];
    AT(float, y)[i] = sum;
  }
}
