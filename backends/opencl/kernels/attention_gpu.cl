// attention.cl on many work-items: all of a work-group take each tile of keys together.

#define kQueries (kGroup * kRows)
#define kQuads (kDim / 4)
#define kSplit (THREADS / kKeys)                     // lanes that share the product of a key
#define kPairs ((kDim / 2 + THREADS - 1) / THREADS)  // of dims, of each work-item
#define kHelpers 8                                   // work-items of a query's softmax
#define kSums (kQueries * kPairs * 2)

// The local memory of a work-group.
typedef struct {
  float4 q[kQueries * kQuads];
  float p[kKeys * kQueries];
  float stat[kMaxQueries * kHelpers];
  float most[kMaxQueries], sum[kMaxQueries], factor[kMaxQueries];
  int pos[kRows], last[kRows];  // of a row, and the last visible position
  int slot[kRows];              // -1: no such row
  uint used[kKeys];             // whether some query weighs a key: others are not read
  int key_row[kKeys], key_pos[kKeys], key_slot[kKeys];
  float lanes[THREADS];
} Shared;

int FirstOld(__local const Shared* s, uint row, int past) {
  if (kWindow == 0) return 0;
  return (kCanvas != 0 ? past : s->pos[row]) - kWindow + 1;
}

bool Sees(__local const Shared* s, uint row, int slot, int pos, bool fresh, int past) {
  if (s->slot[row] != slot) return false;
  if (kCanvas != 0) return fresh || pos >= FirstOld(s, row, past);
  if (kWindow != 0 && s->pos[row] - pos >= kWindow) return false;
  return pos <= s->last[row];
}

float4 LoadFour(__global const Element* from) {
#if kType == kF32
  return *(__global const float4*)from;
#elif defined(NVIDIA)
  const uint2 bits = *(__global const uint2*)from;
  return (float4)(HalfToFloat(bits.x & 0xFFFFu), HalfToFloat(bits.x >> 16),
                  HalfToFloat(bits.y & 0xFFFFu), HalfToFloat(bits.y >> 16));
#else
  return vload_half4(0, (__global const half*)from);
#endif
}
float2 LoadTwo(__global const Element* from) {
#if kType == kF32
  return vload2(0, from);
#elif defined(NVIDIA)
  const uint bits = *(__global const uint*)from;
  return (float2)(HalfToFloat(bits & 0xFFFFu), HalfToFloat(bits >> 16));
#else
  return vload_half2(0, (__global const half*)from);
#endif
}

// Leaves the scores of a tile in s->p.
void Scores(__local Shared* s, __global const Element* keys, bool fresh, int past) {
  const uint key = ME / kSplit, part = ME % kSplit;
  const int key_row = s->key_row[key];  // in rows of [kv_heads, dim], or -1
  float sum[kQueries];
  UNROLL for (uint i = 0; i < kQueries; ++i) sum[i] = 0.0f;
  if (key_row >= 0) {
    __global const Element* base = keys + (size_t)key_row * (kKvHeads * kDim);
    for (uint first = part; first < kQuads; first += kSplit * kBatch) {
      float4 k[kBatch];
      UNROLL for (uint b = 0; b < kBatch; ++b) {
        const uint g = first + b * kSplit;
        k[b] = g < kQuads ? LoadFour(base + g * 4) : (float4)0.0f;
      }
      UNROLL for (uint b = 0; b < kBatch; ++b) {
        const uint g = min(first + b * kSplit, kQuads - 1);
        UNROLL for (uint i = 0; i < kQueries; ++i) sum[i] += dot(k[b], s->q[i * kQuads + g]);
      }
    }
  }
  UNROLL for (uint i = 0; i < kQueries; ++i) {
    const float score = SumOfLanes(sum[i], kSplit, s->lanes);
    if (part == i % kSplit) {
      const bool sees =
          key_row >= 0 && Sees(s, i / kGroup, s->key_slot[key], s->key_pos[key], fresh, past);
      s->p[key * kQueries + i] = sees ? score * kScale : -kInfinity;
    }
  }
}

// Scores to weights, with a running maximum: `kHelpers` work-items for each query.
void Weigh(__local Shared* s) {
  const uint query = ME / kHelpers, helper = ME % kHelpers;
  const bool helps = query < kQueries;
  float most = -kInfinity;
  if (helps) {
    for (uint key = helper; key < kKeys; key += kHelpers) {
      most = fmax(most, s->p[key * kQueries + query]);
    }
    s->stat[ME] = most;
  }
  BARRIER();
  if (helps) {
    most = s->most[query];
    for (uint i = 0; i < kHelpers; ++i) most = fmax(most, s->stat[query * kHelpers + i]);
  }
  BARRIER();
  if (helps) {
    float sum = 0.0f;
    for (uint key = helper; key < kKeys; key += kHelpers) {
      const float score = s->p[key * kQueries + query];
      const float weight = score == -kInfinity ? 0.0f : Exp(score - most);
      s->p[key * kQueries + query] = weight;
      if (weight != 0.0f) s->used[key] = 1;
      sum += weight;
    }
    s->stat[ME] = sum;
    if (helper == 0) {
      const float old = s->most[query];
      s->factor[query] = old == -kInfinity ? 0.0f : Exp(old - most);
      s->most[query] = most;
    }
  }
  BARRIER();
  if (ME < kQueries) {
    float sum = 0.0f;
    for (uint i = 0; i < kHelpers; ++i) sum += s->stat[ME * kHelpers + i];
    // Written as one operation: a compiler that fuses would fuse the first term of a sum alone, and
    // the result would depend on the place of a fresh key among those of other slots.
    s->sum[ME] = fma(s->sum[ME], s->factor[ME], sum);
  }
}

INLINED void AddValues(__local const Shared* s, __global const Element* values, float* acc) {
  UNROLL for (uint i = 0; i < kQueries; ++i) {
    UNROLL for (uint j = 0; j < kPairs * 2; ++j) acc[i * kPairs * 2 + j] *= s->factor[i];
  }
  for (uint key = 0; key < kKeys; key += kBatch) {
    UNROLL for (uint j = 0; j < kPairs; ++j) {
      const uint pair = ME + j * THREADS;
      if (pair >= kDim / 2) continue;
      float2 v[kBatch];
      UNROLL for (uint b = 0; b < kBatch; ++b) {
        v[b] = 0.0f;
        // Rows that no query sees may hold anything.
        if (s->used[key + b] == 0) continue;
        v[b] = LoadTwo(values + (size_t)s->key_row[key + b] * (kKvHeads * kDim) + pair * 2);
      }
      UNROLL for (uint b = 0; b < kBatch; ++b) {
        UNROLL for (uint i = 0; i < kQueries; ++i) {
          const float weight = s->p[(key + b) * kQueries + i];
          const uint at = (i * kPairs + j) * 2;
          acc[at] = fma(weight, v[b].x, acc[at]);
          acc[at + 1] = fma(weight, v[b].y, acc[at + 1]);
        }
      }
    }
  }
}

// Keys and values of one tile, of this work-group's key/value head.
INLINED void Tile(__local Shared* s, __global const Element* keys, __global const Element* values,
                  bool fresh, int past, float* acc) {
  BARRIER();
  if (ME < kKeys) s->used[ME] = 0;
  BARRIER();
  Scores(s, keys, fresh, past);
  BARRIER();
  Weigh(s);
  BARRIER();
  AddValues(s, values, acc);
  BARRIER();
}

KERNEL(attention) {
  __local Shared shared;
  __local Shared* s = &shared;
  const uint rows = ROWS_OF(rows), fresh = ROWS_OF(fresh);
  const uint first_row = (uint)get_group_id(2) * kRows;
  if (first_row >= rows) return;
  const uint first_head = (uint)get_group_id(1) * kGroup;
  const uint kv_head = first_head / (kHeads / kKvHeads);
  const uint part = GROUP, parts = GROUPS;
  float acc[kSums];

  if (ME < kRows) {
    const uint row = first_row + ME;
    const int slot = row < rows ? AT(int, q_slot)[row] : -1;
    s->slot[ME] = slot >= (int)kSlots ? -1 : slot;
    s->pos[ME] = row < rows ? AT(int, q_pos)[row] : 0;
    s->last[ME] = row < rows ? AT(int, q_end)[row] : 0;
  }
  if (ME < kMaxQueries) {
    s->most[ME] = -kInfinity;
    s->sum[ME] = 0.0f;
  }
  FOR_MINE(i, kQueries * kQuads) {
    const uint query = i / kQuads;
    const uint row = first_row + query / kGroup, head = first_head + query % kGroup;
    s->q[i] = row < rows ? AT(float4, q)[((size_t)row * kHeads + head) * kQuads + i % kQuads]
                         : (float4)0.0f;
  }
  UNROLL for (uint i = 0; i < kSums; ++i) acc[i] = 0.0f;
  BARRIER();

  for (uint leader = 0; leader < kRows; ++leader) {
    const int slot = s->slot[leader];
    bool is_new = slot >= 0;
    for (uint row = 0; row < leader; ++row) is_new = is_new && s->slot[row] != slot;
    const int past = is_new ? AT(int, past)[slot] : 0;
    int first = past;
    for (uint row = leader; row < kRows; ++row) {
      if (s->slot[row] == slot) first = min(first, FirstOld(s, row, past));
    }
    first = max(first, max(past - (int)kCapacity, 0));
    for (int at = first + (int)(part * kKeys); at < past; at += (int)(parts * kKeys)) {
      BARRIER();
      if (ME < kKeys) {
        const int pos = at + (int)ME;
        s->key_pos[ME] = pos;
        s->key_slot[ME] = slot;
        s->key_row[ME] = pos < past ? slot * (int)kCapacity + (int)((uint)pos % kCapacity) : -1;
      }
      Tile(s, AT(const Element, k_state) + kv_head * kDim,
           AT(const Element, v_state) + kv_head * kDim, false, past, acc);
    }
  }
  for (uint at = (parts - 1 - part) * kKeys; at < fresh; at += parts * kKeys) {
    BARRIER();
    if (ME < kKeys) {
      const uint i = at + ME;
      s->key_row[ME] = i < fresh ? (int)i : -1;
      s->key_pos[ME] = i < fresh ? AT(int, kv_pos)[i] : 0;
      s->key_slot[ME] = i < fresh ? AT(int, kv_slot)[i] : -2;
    }
    Tile(s, AT(const Element, k_new) + kv_head * kDim, AT(const Element, v_new) + kv_head * kDim,
         true, 0, acc);
  }

  // The results, or with several parts: all weighted sums, then maxima, then sums of weights.
  BARRIER();
  const uint all = rows * kHeads;
  UNROLL for (uint i = 0; i < kQueries; ++i) {
    const uint row = first_row + i / kGroup, head = first_head + i % kGroup;
    if (row >= rows) continue;
    const uint index = row * kHeads + head;
    const float sum = s->sum[i];
    const float factor = parts > 1 ? 1.0f : sum > 0.0f ? 1.0f / sum : 0.0f;
    __global float* y = AT(float, y) + ((size_t)part * all + index) * kDim;
    UNROLL for (uint j = 0; j < kPairs; ++j) {
      const uint pair = ME + j * THREADS;
      if (pair < kDim / 2) {
        y[pair * 2] = acc[(i * kPairs + j) * 2] * factor;
        y[pair * 2 + 1] = acc[(i * kPairs + j) * 2 + 1] * factor;
      }
    }
    if (parts > 1 && ME == 0) {
      __global float* stats = AT(float, y) + (size_t)parts * all * kDim;
      stats[part * all + index] = s->most[i];
      stats[(parts + part) * all + index] = sum;
    }
  }
}
