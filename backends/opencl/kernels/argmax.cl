// The lowest index of the largest value of each row. One work-group for each row.
#include "common.cl"
#include "order.cl"

typedef struct {
  Pointer step, x, y;
  Extent rows;
  uint columns;
} Push;

KERNEL argmax(BUFFER(step) BUFFER(x) BUFFER(y) const Push push) {
  __local uint shared_key[THREADS];
  __local uint shared_index[THREADS];
  const uint count = ROWS_OF(rows);
  for (uint row = GROUP; row < count; row += GROUPS) {
    __global const float *x = AT(float, x) + (size_t)row * push.columns;
    uint best = 0, at = 0xFFFFFFFFu;
    FOR_MINE(i, push.columns) {
      const uint key = KeyOf(x[i]);
      if (key > best || at == 0xFFFFFFFFu) {
        best = key;
        at = i;
      }
    }
    BARRIER();
    shared_key[ME] = best;
    shared_index[ME] = at;
    BARRIER();
    for (uint width = THREADS / 2; width > 0; width /= 2) {
      if (ME < width) {
        const uint key = shared_key[ME + width], index = shared_index[ME + width];
        if (key > shared_key[ME] || (key == shared_key[ME] && index < shared_index[ME])) {
          shared_key[ME] = key;
          shared_index[ME] = index;
        }
      }
      BARRIER();
    }
    if (ME == 0) AT(uint, y)[row] = shared_index[0];
    BARRIER();
  }
}
