// The lowest index of the largest value of each row, or of parts of it, or among some of its
// elements. One work-group for each row or part.
#include "common.cl"
#include "argmax.args"
#include "order.kernel"

KERNEL(argmax) {
  __local uint shared_key[THREADS];
  __local uint shared_index[THREADS];
  const uint count = ROWS_OF(rows);
  for (uint item = GROUP; item < count * push.parts; item += GROUPS) {
    const uint row = item / push.parts, first = item % push.parts * push.span;
    __global const float* x = AT(float, x) + (size_t)row * push.columns;
    uint best = 0, at = 0xFFFFFFFFu;
    FOR_MINE(i, push.span) {
      const uint element = IS_NULL(among) ? first + i : AT(const uint, among)[row * push.span + i];
      const uint key = KeyOf(x[element]);
      if (key > best || at == 0xFFFFFFFFu) {
        best = key;
        at = element;
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
    if (ME == 0) AT(uint, y)[item] = shared_index[0];
    BARRIER();
  }
}
