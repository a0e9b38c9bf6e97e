// y = the sum of `parts` tensors that follow each other, in order.
#include "common.cl"

typedef struct {
  Pointer step, x, y;
  Extent rows;
  uint n, parts;
} Push;

KERNEL sum_parts(BUFFER(step) BUFFER(x) BUFFER(y) const Push push) {
  const uint total = ROWS_OF(rows) * push.n;
  FOR_EACH(i, total) {
    float sum = 0.0f;
    for (uint part = 0; part < push.parts; ++part) sum += AT(float, x)[(size_t)part * total + i];
    AT(float, y)[i] = sum;
  }
}
