// Accepts rows in ascending order of entropy while the float64 sum of those before is within the
// bound. One work-group.
#include "common.cl"
#include "entropy_accept.args"
#include "order.kernel"
#include "sort.cl"

KERNEL(entropy_accept) {
  LIST();
  LIST_AT(0);
  const uint rows = ROWS_OF(rows);
  FOR_MINE(i, push.room) {
    uint key = 0;
    if (i < rows) {
      const float x = AT(float, x)[i];
      key = IsNan(x) ? 1 : ~KeyOf(x);
    }
    list[i] = (uint2)(key, i);
  }
  BARRIER();
  Sort(list, push.room);
  if (ME != 0) return;
  double sum = 0.0;
  for (uint i = 0; i < rows; ++i) {
    const uint row = list[i].y;
    const float x = AT(float, x)[row];
    AT(float, y)[row] = !IsNan(x) && sum <= (double)push.bound ? 1.0f : 0.0f;
    if (!IsNan(x)) sum += (double)x;
  }
}
