// Biases on single columns. y already holds a copy of the logits. One work-group for each row.
#include "common.cl"
#include "bias_add.args"

KERNEL bias_add(ARGUMENTS) {
  const uint count = ROWS_OF(rows);
  for (uint row = GROUP; row < count; row += GROUPS) {
    __global const float* x = AT(float, x) + (size_t)row * push.columns;
    __global float* y = AT(float, y) + (size_t)row * push.columns;
    FOR_MINE(i, push.count) {
      const size_t at = (size_t)row * push.stride + i;
      const int id = AT(int, ids)[at];
      if (push.stride != 0 && id == -1) continue;
      if (id < 0 || id >= (int)push.columns) {
        FAIL();
        continue;
      }
      y[id] = x[id] + AT(float, biases)[at];
    }
  }
}
