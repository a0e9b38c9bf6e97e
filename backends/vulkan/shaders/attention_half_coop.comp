#version 460
// Attention of many rows on matrix units for keys and values in f16: the same as attention,
// with each value of a query and each weight of a key rounded to one f16 number, as keys and values
// are. Keys and values in f32, of rows without old ones, come from to_half. A workgroup of eight
// subgroups takes some queries (rows times heads that share a key/value head) and goes through the
// keys in tiles with a running softmax. In a tile each subgroup computes the scores of 16 queries
// and 16 keys, or a part of their dims, and then an eighth of the dims of all results. Queries and
// results stay in registers, keys and values come through shared memory, and those of the next tile
// are on their way meanwhile.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_half_coop.args.glsl"
#include "math.kernel"
#include "coop.glsl"
#include "high_low.kernel"

const uint kSubgroups = kThreads / kLanes;
const uint kVectors = kDim / 8;                 // of 8 f16, of a head
const uint kPitch = kVectors + 1;               // odd, so that rows begin in different banks
const uint kOwn = 4;                            // vectors of a tile that an invocation loads
const uint kKeys = kOwn * kThreads / kVectors;  // of a tile
const uint kKeyBlocks = kKeys / kMatrix, kQueryBlocks = kQueries / kMatrix;
// Subgroups that share the dims of a block of scores, and the matrices of each of them.
const uint kDimParts = kSubgroups / (kKeyBlocks * kQueryBlocks);
const uint kPartMatrices = kDim / kMatrix / kDimParts;
const uint kHelpers = kThreads / kQueries;  // invocations of a query's softmax
const uint kOwnKeys = kKeys / kHelpers, kOwnWords = kOwnKeys / 2;
const uint kScorePitch = kKeys / 4 + 1;  // in vectors of 4 f32

// The keys of a tile, then their values; in the beginning queries, in the end results.
const uint kValuesAt = kKeys * kPitch;
const uint kRowVectors = 2 * kKeys * kPitch, kQueryVectors = kQueries * kPitch;
shared uvec4 shared_rows[kRowVectors > kQueryVectors ? kRowVectors : kQueryVectors];
// Scores in f32, by part of the dims; then the weights of the keys in place of the first part.
shared uvec4 shared_score[kDimParts * kQueries * kScorePitch];
shared int shared_key_pos[kKeys];
// The factors of a key and of its value; 0 if they are of another slot.
shared vec2 shared_unit[kUnits != 0 ? kKeys : 1];

Factors queries[kPartMatrices];
uint query_block, key_block, dim_part;  // of this subgroup's scores
// The unit of the results so far of the query that this invocation helps: they are divided by it.
// 1 without kUnits.
float result_unit;

#include "attention_results.glsl"

const int kLargestPos = kNoPos - 1, kSmallestPos = -kLargestPos;
const int kNoSlot = 0x7FFFFFFF;

// ---- queries ------------------------------------------------------------------------------------

uvec4 ToHalf(const Eight e, float factor) {
  const vec4 a = e.x[0] * factor, b = e.x[1] * factor;
  return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

// A query times a power of two of its own, which takes its largest value to 2^8: far from both ends
// of f16.
void StoreQuery(uint index, uint rows) {
  const uint kTurns = kVectors / kLanes;
  const uint row = first_row + index / kGroup;
  const uvec2 from = AdvanceBy(p.q, row * kHeads + first_head + index % kGroup, kDim * 4);
  Eight e[kTurns];
  float most = 0.0;
  [[unroll]] for (uint i = 0; i < kTurns; ++i) {
    const uint at = (i * kLanes + gl_SubgroupInvocationID) * 2;
    e[i] = Eight(vec4[2](vec4(0), vec4(0)));
    if (row < rows) e[i] = Eight(vec4[2](F32x4(from).v[at], F32x4(from).v[at + 1]));
    most = max(most, Largest(e[i]));
  }
  const float unit = UnitOf(subgroupMax(most));
  [[unroll]] for (uint i = 0; i < kTurns; ++i) {
    shared_rows[index * kPitch + i * kLanes + gl_SubgroupInvocationID] =
        ToHalf(e[i], Inverse(unit));
  }
  const float kLog2E = 1.44269504;
  if (gl_SubgroupInvocationID == 0) shared_scale[index] = unit * (kScale * kLog2E);
}

void Prepare(uint rows) {
  if (me < kRows) StoreRow(me, first_row + me, rows);
  [[unroll]] for (uint i = 0; i < kQueries; i += kSubgroups) StoreQuery(i + gl_SubgroupID, rows);
  [[unroll]] for (uint i = 0; i < kDimMatrices * kQueryBlocks; ++i) result[i] = Sums(0.0);
  running_max = -kInfinity;
  running_sum = 0.0;
  result_unit = kUnits != 0 ? uintBitsToFloat(1u << 23) : 1.0;
  barrier();
  const uint at = query_block * kMatrix * kPitch + dim_part * kPartMatrices * (kMatrix / 8);
  [[unroll]] for (uint d = 0; d < kPartMatrices; ++d) {
    coopMatLoadNV(queries[d], shared_rows, at + d * (kMatrix / 8), kPitch, false);
  }
}

// ---- which keys ---------------------------------------------------------------------------------

// The smallest slot above `slot` of a row of this workgroup; kNoSlot if there is none.
int NextSlot(int slot) {
  int next = kNoSlot;
  for (uint row = gl_SubgroupInvocationID; row < kRows; row += kLanes) {
    if (shared_slot[row] > slot) next = min(next, shared_slot[row]);
  }
  return subgroupMin(next);
}

// The positions of keys of a slot that one or several queries see.
struct Visible {
  int first_old;
  int first;  // of the fresh ones
  int last;   // of both
};

Visible VisibleOf(uint row, int past) {
  const int first_old = FirstOld(shared_pos[row], past);
  if (kCanvas != 0) return Visible(first_old, kSmallestPos, kLargestPos);
  return Visible(first_old, kWindow == 0 ? kSmallestPos : first_old, shared_last[row]);
}

// The positions from the first to the last that some row of the slot sees.
Visible VisibleOfSlot(int slot, int past) {
  Visible all = Visible(kLargestPos, kLargestPos, kSmallestPos);
  for (uint row = gl_SubgroupInvocationID; row < kRows; row += kLanes) {
    if (shared_slot[row] != slot) continue;
    const Visible one = VisibleOf(row, past);
    all = Visible(min(all.first_old, one.first_old), min(all.first, one.first),
                  max(all.last, one.last));
  }
  return Visible(subgroupMin(all.first_old), subgroupMin(all.first), subgroupMax(all.last));
}

// The rows of new keys between the first and the last that some query sees: shared_first and
// shared_end.
void FindFresh(int slot, const Visible all) {
  const int count = int(At(p.fresh, Step(p.step)));
  barrier();  // those of the last slot are used
  if (me == 0) {
    shared_first = count;
    shared_end = 0;
  }
  barrier();
  int first = count, end = 0;
  for (int i = int(me); i < count; i += int(kThreads)) {
    const int pos = I32(p.kv_pos).v[i];
    if (I32(p.kv_slot).v[i] != slot || pos < all.first || pos > all.last) continue;
    first = min(first, i);
    end = i + 1;
  }
  first = subgroupMin(first);
  end = subgroupMax(end);
  if (gl_SubgroupInvocationID == 0) {
    atomicMin(shared_first, first);
    atomicMax(shared_end, end);
  }
  barrier();
}

// The keys of a slot: old rows [old, old_end), then fresh rows [fresh, fresh_end), each in tiles.
struct Keys {
  int slot;
  int old, old_end, fresh, fresh_end;
};

int TilesOf(int rows) { return (max(rows, 0) + int(kKeys) - 1) / int(kKeys); }
int OldTiles(const Keys keys) { return TilesOf(keys.old_end - keys.old); }

// ---- one tile -----------------------------------------------------------------------------------

uvec4 own_key[kOwn], own_value[kOwn];
int own_slot[kOwn];             // of the key that a vector is from; -1: there is no such key
int own_key_slot, own_key_pos;  // of the key whose position this invocation stores
vec2 own_unit;                  // its factor and that of its value

// Loads the rows of a tile, and its last row in place of those that are not there.
void LoadTile(const Keys keys, int tile) {
  const int old_tiles = OldTiles(keys);
  const bool fresh = tile >= old_tiles;
  const int at =
      fresh ? keys.fresh + (tile - old_tiles) * int(kKeys) : keys.old + tile * int(kKeys);
  const int end = fresh ? keys.fresh_end : keys.old_end;
  const uvec2 key_base = fresh ? p.k_new : p.k_state, value_base = fresh ? p.v_new : p.v_state;
  [[unroll]] for (uint i = 0; i < kOwn; ++i) {
    const uint index = me + i * kThreads;
    const int wanted = at + int(index / kVectors), key = min(wanted, end - 1);
    const uint row = fresh ? uint(key) : uint(keys.slot) * kCapacity + uint(key) % kCapacity;
    const uint head_row = row * kKvHeads + kv_head, vector = index % kVectors;
    own_slot[i] = keys.slot;
    if (fresh) own_slot[i] = I32(p.kv_slot).v[key];
    if (wanted >= end) own_slot[i] = -1;
    own_key[i] = U32x4(AdvanceBy(key_base, head_row, kDim * 2)).v[vector];
    own_value[i] = U32x4(AdvanceBy(value_base, head_row, kDim * 2)).v[vector];
  }
  if (me < kKeys) {
    const int wanted = at + int(me), key = min(wanted, end - 1);
    own_key_slot = keys.slot;
    own_key_pos = key;
    if (fresh) {
      own_key_slot = I32(p.kv_slot).v[key];
      own_key_pos = I32(p.kv_pos).v[key];
    }
    if (wanted >= end) own_key_slot = -1;
    if (kUnits != 0) {
      const uint from = uint(key) * kKvHeads + kv_head;
      own_unit = vec2(F32(p.k_state).v[from], F32(p.v_state).v[from]);
    }
  }
}

// Values of other slots, and those that are not there, become zeros: they may be anything, also
// what times 0 is not 0.
void StoreTile(int slot) {
  [[unroll]] for (uint i = 0; i < kOwn; ++i) {
    const uint index = me + i * kThreads, at = index / kVectors * kPitch + index % kVectors;
    shared_rows[at] = own_key[i];
    shared_rows[kValuesAt + at] = own_slot[i] == slot ? own_value[i] : uvec4(0);
  }
  if (me < kKeys) shared_key_pos[me] = own_key_slot == slot ? own_key_pos : kNoPos;
  if (kUnits != 0 && me < kKeys) shared_unit[me] = own_key_slot == slot ? own_unit : vec2(0);
}

// There are two sums because a product waits for the last one that it is added to.
void Scores() {
  Sums sum[2];
  sum[0] = sum[1] = Sums(0.0);
  const uint from = key_block * kMatrix * kPitch + dim_part * kPartMatrices * (kMatrix / 8);
  [[unroll]] for (uint d = 0; d < kPartMatrices; ++d) {
    Factors keys;
    coopMatLoadNV(keys, shared_rows, from + d * (kMatrix / 8), kPitch, true);
    sum[d % 2] = coopMatMulAddNV(queries[d], keys, sum[d % 2]);
  }
  const uint to = (dim_part * kQueries + query_block * kMatrix) * kScorePitch;
  coopMatStoreNV(sum[0] + sum[1], shared_score, to + key_block * (kMatrix / 4), kScorePitch, false);
}

// The score of a query and a key.
float ScoreOf(uint index, uint key) {
  float score = 0.0;
  [[unroll]] for (uint i = 0; i < kDimParts; ++i) {
    const uint at = (i * kQueries + index) * kScorePitch + key / 4;
    score += uintBitsToFloat(shared_score[at][key & 3]);
  }
  return score;
}

// Weights in place of scores; those of a query are this subgroup's alone. The query sees positions
// `first` to `last`.
void Softmax(int first, int last) {
  const uint index = me / kHelpers, first_key = me % kHelpers * kOwnKeys;
  const float scale = shared_scale[index];
  float score[kOwnKeys];
  float most = running_max;
  [[unroll]] for (uint i = 0; i < kOwnKeys; ++i) {
    const int pos = shared_key_pos[first_key + i];
    float x = ScoreOf(index, first_key + i) * scale;
    if (kUnits != 0) x *= shared_unit[first_key + i].x;
    score[i] = pos >= first && pos <= last ? x : -kInfinity;
    most = max(most, score[i]);
  }
  most = HelpersMax(most);
  const float base = most == -kInfinity ? 0.0 : most;
  // Values come in units of their own, and results have the largest unit so far.
  float unit_now = result_unit;
  if (kUnits != 0) {
    [[unroll]] for (uint i = 0; i < kOwnKeys; ++i) {
      unit_now = max(unit_now, shared_unit[first_key + i].y);
    }
    unit_now = HelpersMax(unit_now);
  }
  const float down = Inverse(unit_now);
  float sum = 0.0;
  uint weights[kOwnWords];
  [[unroll]] for (uint i = 0; i < kOwnWords; ++i) {
    vec2 pair = exp2(vec2(score[i * 2], score[i * 2 + 1]) - base) * kLargestWeight;
    sum += pair.x + pair.y;
    if (kUnits != 0) {
      const uint key = first_key + i * 2;
      pair *= vec2(shared_unit[key].y, shared_unit[key + 1].y) * down;
    }
    weights[i] = packHalf2x16(pair);
  }
  const float factor = exp2(running_max - base);
  running_sum = running_sum * factor + HelpersSum(sum);
  running_max = most;
  subgroupBarrier();  // all scores of the query are read
  [[unroll]] for (uint i = 0; i < kOwnWords; ++i) {
    const uint word = first_key / 2 + i;
    shared_score[index * kScorePitch + word / 4][word % 4] = weights[i];
  }
  StoreFactor(kUnits != 0 ? factor * (result_unit * down) : factor);
  result_unit = unit_now;
}

void AddValues() {
  [[unroll]] for (uint block = 0; block < kKeyBlocks; ++block) {
    Factors weights[kQueryBlocks];
    [[unroll]] for (uint m = 0; m < kQueryBlocks; ++m) {
      const uint at = m * kMatrix * kScorePitch + block * (kMatrix / 8);
      coopMatLoadNV(weights[m], shared_score, at, kScorePitch, false);
    }
    const uint from = kValuesAt + block * kMatrix * kPitch;
    [[unroll]] for (uint n = 0; n < kDimMatrices; ++n) {
      Factors values;
      const uint at = from + (gl_SubgroupID * kDimMatrices + n) * (kMatrix / 8);
      coopMatLoadNV(values, shared_rows, at, kPitch, false);
      [[unroll]] for (uint m = 0; m < kQueryBlocks; ++m) {
        const uint i = n * kQueryBlocks + m;
        result[i] = coopMatMulAddNV(weights[m], values, result[i]);
      }
    }
  }
}

// ---- all tiles ----------------------------------------------------------------------------------

void KeysOf(int slot) {
  const int past = I32(p.past).v[slot];
  const Visible all = VisibleOfSlot(slot, past);
  FindFresh(slot, all);
  const int old = max(all.first_old, max(past - int(kCapacity), 0));
  const Keys keys = Keys(slot, old, min(past, all.last + 1), shared_first, shared_end);
  const int old_tiles = OldTiles(keys), tiles = old_tiles + TilesOf(keys.fresh_end - keys.fresh);
  const uint row = me / kHelpers / kGroup;
  Visible seen = VisibleOf(row, past);
  if (shared_slot[row] != slot) seen = Visible(kLargestPos, kLargestPos, kSmallestPos);
  if (tiles > 0) LoadTile(keys, 0);
  for (int tile = 0; tile < tiles; ++tile) {
    barrier();  // the last tile and its weights are used
    StoreTile(slot);
    barrier();
    if (tile + 1 < tiles) LoadTile(keys, tile + 1);
    Scores();
    barrier();
    Softmax(tile < old_tiles ? seen.first_old : seen.first, seen.last);
    barrier();
    ScaleResults();
    AddValues();
  }
}

void main() {
  me = gl_SubgroupID * kLanes + gl_SubgroupInvocationID;
  query_block = gl_SubgroupID % kQueryBlocks;
  key_block = gl_SubgroupID / kQueryBlocks % kKeyBlocks;
  dim_part = gl_SubgroupID / (kQueryBlocks * kKeyBlocks);
  const uint rows = At(p.rows, Step(p.step));
  // The last rows first: in a prompt they see most keys.
  first_row = (GROUPS.z - 1 - GROUP.z) * kRows;
  if (first_row >= rows) return;
  const uint blocks = kHeads / kKvHeads / kGroup;  // workgroups of a key/value head
  kv_head = GROUP.y / blocks;
  first_head = GROUP.y * kGroup;
  Prepare(rows);
  for (int slot = NextSlot(-1); slot != kNoSlot; slot = NextSlot(slot)) KeysOf(slot);
  StoreResults(rows, running_sum > 0.0 ? result_unit / running_sum : 0.0);
}
