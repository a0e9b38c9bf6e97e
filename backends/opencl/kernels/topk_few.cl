// The k largest values of each row of few columns, descending, equal ones by ascending index, or a
// softmax of these. One work-group for each row: a column's place is the number of those that come
// before it.
#include "common.cl"
#include "topk_few.args"
#include "math.kernel"
#include "order.kernel"

#define kMaxColumns 512

uint PlaceOf(uint column, __local const uint* keys, uint columns) {
  const uint key = keys[column];
  uint place = 0;
  for (uint i = 0; i < columns; ++i) {
    const uint other = keys[i];
    if (other > key || (other == key && i < column)) ++place;
  }
  return place;
}

// Each result for itself: there are few. The largest comes first.
float SoftmaxOf(uint place, __local const float* found, uint k) {
  const float most = found[0];
  if (most == kInfinity) return kNan;
  if (most == -kInfinity) return 0.0f;
  float sum = 0.0f;
  for (uint i = 0; i < k; ++i) sum += Exp(found[i] - most);
  return Exp(found[place] - most) / sum;
}

KERNEL(topk_few) {
  __local uint shared_keys[kMaxColumns];
  __local float shared_found[kMaxColumns];
  const uint count = ROWS_OF(rows), columns = push.columns, k = push.k;
  for (uint row = GROUP; row < count; row += GROUPS) {
    __global const float* x = AT(float, x) + (size_t)row * columns;
    __global float* values = AT(float, values) + (size_t)row * k;
    __global int* indices = AT(int, indices) + (size_t)row * k;
    FOR_MINE(i, columns) shared_keys[i] = KeyOf(x[i]);
    BARRIER();
    FOR_MINE(i, columns) {
      const uint place = PlaceOf(i, shared_keys, columns);
      if (place >= k) continue;
      indices[place] = (int)i;
      shared_found[place] = push.factor * ValueOf(shared_keys[i]);
    }
    BARRIER();
    FOR_MINE(i, k) values[i] = kSoftmax != 0 ? SoftmaxOf(i, shared_found, k) : shared_found[i];
    BARRIER();
  }
}
