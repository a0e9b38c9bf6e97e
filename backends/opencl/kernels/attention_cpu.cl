// Attention (attention.kernel) on a CPU: a work-group is one work-item, which takes up to 4
// queries, one after the other in a tile of keys. Its shapes are arguments (Programs::ArgumentsOf),
// so that one kernel serves all.

#define kKeys 32           // of a tile
#define kMaxRows 4         // times heads: kMaxQueriesInSoftware in gpu/ops_attention.cc
#define kMaxElements 4096  // of all queries of a work-item: kQueryBytes in gpu/ops_attention.cc

// Elements [i, i + 16) of a row of keys or values of a type; i is a multiple of 16.
float16 Widen(__global const uchar* row, uint i, uint type) {
  if (type == kF32) return vload16(0, (__global const float*)row + i);
  if (type == kF16) return vload_half16(0, (__global const half*)row + i);
  if (type == kBF16) {
    return as_float16(convert_uint16(vload16(0, (__global const ushort*)row + i)) << 16u);
  }
  __global const uchar* block = row + CacheBytes(type, i);
  const float scale = vload_half(0, (__global const half*)block);
  if (type == kQ8_0) {
    return scale * convert_float16(vload16(0, (__global const char*)block + 2 + i % 32));
  }
  const uchar16 codes = (vload16(0, block + 2) >> (uchar)(i % 32 / 4)) & (uchar)15;
  return scale * (convert_float16(codes) - 8.0f);
}
// Element i of a row that is not in blocks.
float WidenOne(__global const uchar* row, uint i, uint type) {
  if (type == kF32) return ((__global const float*)row)[i];
  if (type == kF16) return vload_half(i, (__global const half*)row);
  return BFloat16ToFloat(((__global const ushort*)row)[i]);
}

// The product of a query and a key of `dim` elements.
float Score(const float* q, __global const uchar* k, uint dim) {
  float16 sums = 0.0f;
  uint i = 0;
  for (; i + 16 <= dim; i += 16) sums = fma(vload16(0, q + i), Widen(k, i, kKeyType), sums);
  const float8 eight = sums.lo + sums.hi;
  const float4 four = eight.lo + eight.hi;
  float sum = (four.x + four.y) + (four.z + four.w);
  for (; i < dim; ++i) sum = fma(q[i], WidenOne(k, i, kKeyType), sum);
  return sum;
}

// acc += weight * v
void AddValue(float* acc, float weight, __global const uchar* v, uint dim) {
  uint i = 0;
  for (; i + 16 <= dim; i += 16) {
    vstore16(fma((float16)weight, Widen(v, i, kValueType), vload16(0, acc + i)), 0, acc + i);
  }
  for (; i < dim; ++i) acc[i] = fma(weight, WidenOne(v, i, kValueType), acc[i]);
}

// Adds one tile of keys to a query. The rows of keys and values are given for each, or null where
// the query does not see it.
void AddTile(const float* q, float* acc, float* most, float* sum, float scale, uint dim,
             __global const uchar** keys, __global const uchar** values) {
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
  const size_t key_bytes = CacheBytes(kKeyType, dim), value_bytes = CacheBytes(kValueType, dim);
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
    __global const uchar *keys[kKeys], *values[kKeys];
    int at = max(past - (int)kCapacity, 0);
    at = max(at, FirstOld(ARGS pos, past));
    for (; at < past; at += kKeys) {
      for (int j = 0; j < kKeys; ++j) {
        const int key = at + j;
        const bool seen = key < past && SeesKey(ARGS pos, last, key, false, past);
        const size_t place =
            ((size_t)slot * kCapacity + (uint)key % kCapacity) * kKvHeads + kv_head;
        keys[j] = seen ? AT(const uchar, k_state) + place * key_bytes : 0;
        values[j] = AT(const uchar, v_state) + place * value_bytes;
      }
      AddTile(q + i * dim, acc + i * dim, &most[i], &sum[i], kScale, dim, keys, values);
    }
    for (uint first = 0; first < fresh; first += kKeys) {
      bool any = false;
      for (uint j = 0; j < kKeys; ++j) {
        const uint key = first + j;
        const bool seen = key < fresh && AT(int, kv_slot)[key] == slot &&
                          SeesFresh(ARGS pos, last, AT(int, kv_pos)[key]);
        const size_t place = (size_t)key * kKvHeads + kv_head;
        keys[j] = seen ? AT(const uchar, k_new) + place * key_bytes : 0;
        values[j] = AT(const uchar, v_new) + place * value_bytes;
        any = any || seen;
      }
      if (any) AddTile(q + i * dim, acc + i * dim, &most[i], &sum[i], kScale, dim, keys, values);
    }
  }
  for (uint i = 0; i < queries; ++i) {
    const uint row = first_row + i / group;
    if (row >= rows) continue;
    // A sum that is not a number must not be divided by, and shows.
    const float factor = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
    __global float* y = AT(float, y) + ((size_t)row * heads + first_head + i % group) * dim;
    for (uint d = 0; d < dim; ++d) y[d] = acc[i * dim + d] * factor;
  }
}
