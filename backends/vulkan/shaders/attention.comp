#version 460
// Attention over the old rows of a slot and the fresh rows of the step, in tiles of 32 keys with a
// running softmax. A workgroup takes up to 16 queries (rows times heads that share a key/value
// head) and a part of the tiles of keys; attention_merge.comp joins the parts. The old tiles of a
// slot are dealt to the parts from the first on, fresh ones from the last on: what a row gives does
// not depend on the other slots of the step. Keys and values are read once for all queries of the
// workgroup. Accumulates in f32.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.args.glsl"
#include "math.kernel"
#include "lanes.glsl"

const uint kQueries = kGroup * kRows;
const uint kThreads = gl_WorkGroupSize.x;                  // a power of two, at least 128
const uint kKeys = 32;                                     // of a tile
const uint kSplit = kThreads / kKeys;                      // lanes that share the product of a key
const uint kPairs = (kDim / 2 + kThreads - 1) / kThreads;  // of dims, of each invocation
const uint kHelpers = 8;                                   // invocations of a query's softmax

// Floats as words: matvec_dot.comp has an array like it, which in a step of one dispatch is the
// same memory.
shared uvec4 shared_q[kQueries * (kDim / 4)];
shared float shared_p[kKeys * kQueries];
shared float shared_stat[16 * kHelpers];
shared float shared_max[16];
shared float shared_sum[16];
shared float shared_factor[16];
shared int shared_pos[kRows];
shared int shared_last[kRows];  // the last visible position
shared int shared_slot[kRows];  // -1: no such row
shared uint shared_visible;
shared uint shared_used[kKeys];  // whether some query weighs a key: others are not read
shared int shared_key_row[kKeys];
shared int shared_key_pos[kKeys];
shared int shared_key_slot[kKeys];
#include "attention.glsl"

float acc[kQueries * kPairs * 2];

uint me;
uint first_row;
uint kv_head;
uint first_head;

// ---- one tile -----------------------------------------------------------------------------------

vec4 LoadFour(uvec2 base, uint element) {
  if (kType == kF32) return F32x4(Advance(base, element * 4)).v[0];
  const uvec2 bits = U32x2(Advance(base, element * 2)).v[0];
  return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
}
vec2 LoadTwo(uvec2 base, uint element) {
  if (kType == kF32) return vec2(F32(base).v[element], F32(base).v[element + 1]);
  return unpackHalf2x16(U32(base).v[element / 2]);
}

const uint kElement = kType == kF32 ? 4 : 2;

// Leaves the scores of a tile in shared_p.
void Scores(uvec2 keys, bool fresh, int past) {
  const uint key = me / kSplit, part = me % kSplit;
  const int k_row = shared_key_row[key];  // in rows of [kv_heads, dim], or -1
  float sum[kQueries];
  [[unroll]] for (uint i = 0; i < kQueries; ++i) sum[i] = 0.0;
  if (k_row >= 0) {
    const uvec2 base = Advance(AdvanceBy(keys, uint(k_row), kKvHeads * kDim * kElement),
                               kv_head * kDim * kElement);
    for (uint first = part; first < kDim / 4; first += kSplit * kBatch) {
      vec4 k[kBatch];
      [[unroll]] for (uint b = 0; b < kBatch; ++b) {
        const uint g = first + b * kSplit;
        k[b] = g < kDim / 4 ? LoadFour(base, g * 4) : vec4(0);
      }
      [[unroll]] for (uint b = 0; b < kBatch; ++b) {
        const uint g = min(first + b * kSplit, kDim / 4 - 1);
        [[unroll]] for (uint i = 0; i < kQueries; ++i) {
          sum[i] += dot(k[b], uintBitsToFloat(shared_q[i * (kDim / 4) + g]));
        }
      }
    }
  }
  [[unroll]] for (uint i = 0; i < kQueries; ++i) {
    const float score = SumOfLanes(sum[i], kSplit);
    if (part != i % kSplit) continue;
    const bool sees =
        k_row >= 0 && Sees(i / kGroup, shared_key_slot[key], shared_key_pos[key], fresh, past);
    shared_p[key * kQueries + i] = sees ? score * kScale : -kInfinity;
  }
}

void Tile(uvec2 keys, uvec2 values, bool fresh, int past) {
  barrier();
  if (me == 0) shared_visible = 0;
  if (me < kKeys) shared_used[me] = 0;
  barrier();
  if (me < kKeys && shared_key_row[me] >= 0) {
    for (uint row = 0; row < kRows; ++row) {
      if (Sees(row, shared_key_slot[me], shared_key_pos[me], fresh, past)) shared_visible = 1;
    }
  }
  barrier();
  if (shared_visible == 0) return;
  Scores(keys, fresh, past);
  barrier();
  // The running maximum: `kHelpers` invocations for each query.
  const uint query = me / kHelpers, helper = me % kHelpers;
  if (query < kQueries) {
    float most = -kInfinity;
    for (uint key = helper; key < kKeys; key += kHelpers) {
      most = max(most, shared_p[key * kQueries + query]);
    }
    shared_stat[me] = most;
  }
  barrier();
  float most = -kInfinity;
  if (query < kQueries) {
    most = shared_max[query];
    for (uint i = 0; i < kHelpers; ++i) most = max(most, shared_stat[query * kHelpers + i]);
  }
  barrier();
  if (query < kQueries) {
    float sum = 0.0;
    for (uint key = helper; key < kKeys; key += kHelpers) {
      const float score = shared_p[key * kQueries + query];
      const float weight = score == -kInfinity ? 0.0 : Exp(score - most);
      shared_p[key * kQueries + query] = weight;
      if (weight != 0.0) shared_used[key] = 1;
      sum += weight;
    }
    shared_stat[me] = sum;
    if (helper == 0) {
      const float old = shared_max[query];
      shared_factor[query] = old == -kInfinity ? 0.0 : Exp(old - most);
      shared_max[query] = most;
    }
  }
  barrier();
  if (me < kQueries) {
    float sum = 0.0;
    for (uint i = 0; i < kHelpers; ++i) sum += shared_stat[me * kHelpers + i];
    // Written as one operation: a compiler that fuses would fuse the first term of a sum alone, and
    // the result would depend on the place of a fresh key among those of other slots.
    shared_sum[me] = fma(shared_sum[me], shared_factor[me], sum);
  }
  [[unroll]] for (uint i = 0; i < kQueries; ++i) {
    [[unroll]] for (uint j = 0; j < kPairs * 2; ++j) acc[i * kPairs * 2 + j] *= shared_factor[i];
  }
  for (uint key = 0; key < kKeys; key += kBatch) {
    [[unroll]] for (uint j = 0; j < kPairs; ++j) {
      const uint pair = me + j * kThreads;
      if (pair >= kDim / 2) continue;
      vec2 v[kBatch];
      [[unroll]] for (uint b = 0; b < kBatch; ++b) {
        v[b] = vec2(0);
        // Rows that no query sees may hold anything.
        if (shared_used[key + b] == 0) continue;
        const uint row = uint(shared_key_row[key + b]);
        v[b] = LoadTwo(
            Advance(AdvanceBy(values, row, kKvHeads * kDim * kElement), kv_head * kDim * kElement),
            pair * 2);
      }
      [[unroll]] for (uint b = 0; b < kBatch; ++b) {
        [[unroll]] for (uint i = 0; i < kQueries; ++i) {
          const float weight = shared_p[(key + b) * kQueries + i];
          const uint at = (i * kPairs + j) * 2;
          acc[at] = fma(weight, v[b].x, acc[at]);
          acc[at + 1] = fma(weight, v[b].y, acc[at + 1]);
        }
      }
    }
  }
}

// ---- all tiles ----------------------------------------------------------------------------------

void Prepare(uint rows) {
  if (me < kRows) StoreRow(me, first_row + me, rows);
  if (me < 16) {
    shared_max[me] = -kInfinity;
    shared_sum[me] = 0.0;
  }
  for (uint i = me; i < kQueries * (kDim / 4); i += kThreads) {
    const uint query = i / (kDim / 4), g = i % (kDim / 4);
    const uint row = first_row + query / kGroup;
    const uint head = first_head + query % kGroup;
    vec4 q = vec4(0);
    if (row < rows) {
      q = F32x4(AdvanceBy(p.q, row * kHeads + head, kDim * 4)).v[g];
    }
    shared_q[i] = floatBitsToUint(q);
  }
  [[unroll]] for (uint i = 0; i < kQueries * kPairs * 2; ++i) acc[i] = 0.0;
  barrier();
}

// Keys whose tiles are dealt to the parts of a head: `first` begins this workgroup's first tile.
struct KeyList {
  int first, end;
};

// The old keys of the slot of row `leader`; none without a slot, or where an earlier row has the
// same one.
KeyList OldKeys(uint leader, int past, uint part) {
  const int slot = shared_slot[leader];
  bool seen = slot < 0;
  for (uint row = 0; row < leader; ++row) seen = seen || shared_slot[row] == slot;
  int first = past;
  for (uint row = leader; row < kRows; ++row) {
    if (shared_slot[row] == slot) first = min(first, FirstOld(row, past));
  }
  first = max(first, max(past - int(kCapacity), 0));
  return KeyList(first + int(part * kKeys), seen ? 0 : past);
}

KeyList FreshKeys(uint part, uint parts) {
  return KeyList(int((parts - 1 - part) * kKeys), int(At(p.fresh, Step(p.step))));
}

// Stores row, position and slot of a key of a tile.
void StoreKey(int at, int end, bool fresh, int slot) {
  const bool there = at < end;
  if (fresh) {
    shared_key_row[me] = there ? at : -1;
    shared_key_pos[me] = there ? I32(p.kv_pos).v[at] : 0;
    shared_key_slot[me] = there ? I32(p.kv_slot).v[at] : -2;
  } else {
    shared_key_row[me] = there ? slot * int(kCapacity) + int(uint(at) % kCapacity) : -1;
    shared_key_pos[me] = at;
    shared_key_slot[me] = slot;
  }
}

// The old keys of each slot, then the fresh keys. One call of Tile() for both: drivers compile a
// copy for each call.
void AllTiles(uint part, uint parts) {
  for (uint list = 0; list <= kRows; ++list) {
    const bool fresh = list == kRows;
    const int slot = fresh ? -1 : shared_slot[min(list, kRows - 1)];
    const int past = slot < 0 ? 0 : I32(p.past).v[slot];
    const KeyList keys = fresh ? FreshKeys(part, parts) : OldKeys(list, past, part);
    for (int at = keys.first; at < keys.end; at += int(parts * kKeys)) {
      barrier();
      if (me < kKeys) StoreKey(at + int(me), keys.end, fresh, slot);
      Tile(fresh ? p.k_new : p.k_state, fresh ? p.v_new : p.v_state, fresh, past);
    }
  }
}

// The results, or with several parts: all weighted sums, then maxima, then sums of weights.
void Store(uint part, uint parts, uint rows) {
  barrier();
  const uint all = rows * kHeads;
  [[unroll]] for (uint i = 0; i < kQueries; ++i) {
    const uint row = first_row + i / kGroup;
    const uint head = first_head + i % kGroup;
    if (row >= rows) continue;
    const uint index = row * kHeads + head;
    const float sum = shared_sum[i];
    const float factor = parts > 1 ? 1.0 : sum > 0.0 ? 1.0 / sum : 0.0;
    const uvec2 base = AdvanceBy(p.y, part * all + index, kDim * 4);
    [[unroll]] for (uint j = 0; j < kPairs; ++j) {
      const uint pair = me + j * kThreads;
      if (pair < kDim / 2) {
        F32(base).v[pair * 2] = acc[(i * kPairs + j) * 2] * factor;
        F32(base).v[pair * 2 + 1] = acc[(i * kPairs + j) * 2 + 1] * factor;
      }
    }
    if (parts > 1 && me == 0) {
      const uvec2 stats = AdvanceBy(p.y, parts * all, kDim * 4);
      F32(stats).v[part * all + index] = shared_max[i];
      F32(stats).v[(parts + part) * all + index] = sum;
    }
  }
}

void main() {
  me = Index();
  const uint rows = At(p.rows, Step(p.step));
  first_row = GROUP.z * kRows;
  if (first_row >= rows) return;
  const uint blocks = kHeads / kKvHeads / kGroup;  // workgroups of a key/value head
  kv_head = GROUP.y / blocks;
  first_head = GROUP.y * kGroup;
  const uint part = GROUP.x, parts = GROUPS.x;
  Prepare(rows);
  AllTiles(part, parts);
  Store(part, parts, rows);
}
