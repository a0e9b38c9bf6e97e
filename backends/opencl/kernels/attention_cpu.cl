// Attention (attention.kernel) on a CPU: a work-group is one work-item, which takes up to 4
// queries, one after the other in a tile of keys. Its shapes are arguments (Programs::ArgumentsOf),
// so that one kernel serves all.

#if kType == kF32
#define Element float
#else
#define Element ushort
#endif

#define kKeys 32           // of a tile
#define kMaxRows 4         // times heads: kMaxQueriesInSoftware in gpu/ops_attention.cc
#define kMaxElements 4096  // of all queries of a work-item: kQueryBytes in gpu/ops_attention.cc

float16 Widen(__global const Element* from) {
#if kType == kF32
  return vload16(0, from);
#else
  return vload_half16(0, (__global const half*)from);
#endif
}
float WidenOne(__global const Element* from) {
#if kType == kF32
  return *from;
#else
  return vload_half(0, (__global const half*)from);
#endif
}

// The product of a query and a key of `dim` elements.
float Score(const float* q, __global const Element* k, uint dim) {
  float16 sums = 0.0f;
  uint i = 0;
  for (; i + 16 <= dim; i += 16) sums = fma(vload16(0, q + i), Widen(k + i), sums);
  const float8 eight = sums.lo + sums.hi;
  const float4 four = eight.lo + eight.hi;
  float sum = (four.x + four.y) + (four.z + four.w);
  for (; i < dim; ++i) sum = fma(q[i], WidenOne(k + i), sum);
  return sum;
}

// acc += weight * v
void AddValue(float* acc, float weight, __global const Element* v, uint dim) {
  uint i = 0;
  for (; i + 16 <= dim; i += 16) {
    vstore16(fma((float16)weight, Widen(v + i), vload16(0, acc + i)), 0, acc + i);
  }
  for (; i < dim; ++i) acc[i] = fma(weight, WidenOne(v + i), acc[i]);
}

// Adds one tile of keys to a query. The rows of keys and values are given for each, or null where
// the query does not see it.
void AddTile(const float* q, float* acc, float* most, float* sum, float scale, uint dim,
             __global const Element** keys, __global const Element** values) {
  float scores[kKeys];
  float highest = *most;
  for (uint i = 0; i < kKeys; ++i) {
    scores[i] = keys[i] == 0 ? -kInfinity : Score(q, keys[i], dim) * scale;
    highest = fmax(highest, scores[i]);
  }
  // fmax() drops a value that is not a number; the sum keeps it.
  const float factor = *most == -kInfinity ? 0.0f : Exp(*most - highest);
  if (factor != 1.0f) {
    for (uint i = 0; i < dim; ++i) acc[i] *= factor;
  }
  *sum *= factor;
  *most = highest;
  for (uint i = 0; i < kKeys; ++i) {
    if (keys[i] == 0) continue;
    const float weight = scores[i] == -kInfinity ? 0.0f : Exp(scores[i] - highest);
    *sum += weight;
    if (weight != 0.0f) AddValue(acc, weight, values[i], dim);
  }
}

KERNEL(attention) {
  const uint rows = ROWS_OF(rows), first_row = (uint)get_group_id(2) * kRows;
  if (first_row >= rows) return;
  const uint dim = kDim, group = kGroup, heads = kHeads;
  const uint first_head = (uint)get_group_id(1) * group;
  const uint kv_head = first_head / (heads / kKvHeads);
  const size_t pitch = (size_t)kKvHeads * dim;
  const uint queries = group * kRows;
  float acc[kMaxElements], q[kMaxElements];
  float most[kMaxRows], sum[kMaxRows];
  for (uint i = 0; i < queries; ++i) {
    const uint row = first_row + i / group;
    most[i] = -kInfinity;
    sum[i] = 0.0f;
    for (uint d = 0; d < dim; ++d) {
      acc[i * dim + d] = 0.0f;
      q[i * dim + d] = row < rows
                           ? AT(float, q)[((size_t)row * heads + first_head + i % group) * dim + d]
                           : 0.0f;
    }
  }
  const uint fresh = ROWS_OF(fresh);
  for (uint i = 0; i < queries; ++i) {
    const uint row = first_row + i / group;
    if (row >= rows) continue;
    const int pos = AT(int, q_pos)[row], last = AT(int, q_end)[row], slot = AT(int, q_slot)[row];
    if (slot < 0 || slot >= (int)kSlots) continue;
    const int past = AT(int, past)[slot];
    __global const Element *keys[kKeys], *values[kKeys];
    int at = max(past - (int)kCapacity, 0);
    at = max(at, FirstOld(ARGS pos, past));
    for (; at < past; at += kKeys) {
      for (int j = 0; j < kKeys; ++j) {
        const int key = at + j;
        const bool seen = key < past && SeesKey(ARGS pos, last, key, false, past);
        const size_t place =
            ((size_t)slot * kCapacity + (uint)key % kCapacity) * pitch + (size_t)kv_head * dim;
        keys[j] = seen ? AT(const Element, k_state) + place : 0;
        values[j] = AT(const Element, v_state) + place;
      }
      AddTile(q + i * dim, acc + i * dim, &most[i], &sum[i], kScale, dim, keys, values);
    }
    for (uint first = 0; first < fresh; first += kKeys) {
      bool any = false;
      for (uint j = 0; j < kKeys; ++j) {
        const uint key = first + j;
        const bool seen = key < fresh && AT(int, kv_slot)[key] == slot &&
                          SeesFresh(ARGS pos, last, AT(int, kv_pos)[key]);
        const size_t place = (size_t)key * pitch + (size_t)kv_head * dim;
        keys[j] = seen ? AT(const Element, k_new) + place : 0;
        values[j] = AT(const Element, v_new) + place;
        any = any || seen;
      }
      if (any) AddTile(q + i * dim, acc + i * dim, &most[i], &sum[i], kScale, dim, keys, values);
    }
  }
  for (uint i = 0; i < queries; ++i) {
    const uint row = first_row + i / group;
    if (row >= rows) continue;
    // A sum that is not a number is none to divide by, and shows.
    const float factor = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
    __global float* y = AT(float, y) + ((size_t)row * heads + first_head + i % group) * dim;
    for (uint d = 0; d < dim; ++d) y[d] = acc[i * dim + d] * factor;
  }
}
