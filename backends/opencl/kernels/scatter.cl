// One work-group for each row of the result: scatter_rows and scatter_last. Each element adds up
// what meets in it, in order.
#include "common.cl"
#include "scatter.args"

KERNEL(scatter) {
  const uint rows = ROWS_OF(rows), count = ROWS_OF(count), columns = push.columns;
  for (uint row = GROUP; row < rows; row += GROUPS) {
#if kOp == kScatterRows
    __global const int* index = AT(int, index);
    __global const float* x = AT(float, x);
    const uint stride = columns;
    FOR_MINE(i, row == 0 ? count : 0) {
      if (index[i] < 0 || (uint)index[i] >= rows) FAIL();
    }
#else
    __global const int* index = AT(int, index) + (size_t)row * count;
    __global const float* x = AT(float, x) + (size_t)row * count;
    const uint stride = 1;
    FOR_MINE(i, count) {
      if (index[i] >= (int)columns) FAIL();
    }
#endif
    FOR_MINE(c, columns) {
      const uint here = kOp == kScatterRows ? row : c;
      float sum = 0.0f;
      for (uint i = 0; i < count; ++i) {
        if ((uint)index[i] == here) sum += x[(size_t)i * stride + (stride == 1 ? 0 : c)];
      }
      AT(float, y)[(size_t)row * columns + c] = sum;
    }
  }
}
