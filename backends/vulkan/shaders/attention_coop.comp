#version 460
// Attention of many rows on matrix units: the same as attention for keys and values in f16, or
// the statistics of attention_stats. Queries and weights, which are f32 there, are sums of two
// f16 here, so that as little is lost. Keys and values in f32, of rows without old ones, come from
// to_half in two parts. A workgroup of eight subgroups takes some queries (rows times heads
// that share a key/value head) and goes through the keys in tiles with a running softmax. In a tile
// each subgroup computes the scores of 16 queries and 16 keys, later an eighth of the dims of all
// results. Keys come through shared memory: matrices whose columns are rows of memory load slowly.
// Values come straight from memory, 16 consecutive rows at a time.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_coop.args.glsl"
#include "math.kernel"
#include "coop.glsl"
#include "high_low.kernel"

const int kNoSlot = -2;  // of no row
const uint kSubgroups = kThreads / kLanes;
const uint kQueryBlocks = kQueries / kMatrix;
const uint kKeyBlocks = kSubgroups / kQueryBlocks;
const uint kKeys = kKeyBlocks * kMatrix;    // of a tile
const uint kHelpers = kThreads / kQueries;  // invocations of a query's softmax, of 8 keys
const uint kTurns = kKeys / kLanes;

// In vectors of 8 f16 or 4 f32; odd, so that rows begin in different banks.
const uint kQueryPitch = kDim / 8 + 1;
const uint kScorePitch = kKeys / 4 + 1;
const uint kMaskPitch = kMatrix / 8;
// Vectors of each key in a chunk. A chunk takes about as much shared memory as the scores, whose
// place it shares.
const uint kChunkVectors = kQueryBlocks == 2 ? 8 : 2, kChunkPitch = kChunkVectors + 1;
const uint kLow = kQueries * kQueryPitch;  // where the low parts of the queries begin

shared uvec4 shared_rows[2 * kQueries * kQueryPitch];  // in the end, results on their way to memory
// A chunk of the keys, then scores in f32, then the weights of the keys: high parts, low parts.
const uint kScoreVectors = kQueries * kScorePitch, kKeyVectors = kKeys * kChunkPitch;
shared uvec4 shared_score[kScoreVectors > kKeyVectors ? kScoreVectors : kKeyVectors];
shared uvec4 shared_mask[kKeys * kMaskPitch];  // whether some query sees a key: a row of 1 or 0
shared int shared_key_pos[kKeys];
shared int shared_key_slot[kKeys];
// The units of the parts of a key and of its value; 0 if no query sees it.
shared vec2 shared_unit[kParts == 2 ? kKeys : 1];

float result_unit;  // of the query this invocation helps; 1 without parts

#include "attention_results.glsl"

// ---- queries ------------------------------------------------------------------------------------

Eight LoadEight(uint query, uint at, uint rows) {
  const uint row = first_row + query / kGroup;
  if (row >= rows) return Eight(vec4[2](vec4(0), vec4(0)));
  const uvec2 base = AdvanceBy(p.q, row * kHeads + first_head + query % kGroup, kDim * 4);
  return Eight(vec4[2](F32x4(base).v[at * 2], F32x4(base).v[at * 2 + 1]));
}

// A query times a power of two of its own, which takes its largest value to 2^8: far from both ends
// of f16.
void StoreQuery(uint query, uint rows) {
  float most = 0.0;
  for (uint at = gl_SubgroupInvocationID; at < kDim / 8; at += kLanes) {
    most = max(most, Largest(LoadEight(query, at, rows)));
  }
  const float unit = UnitOf(subgroupMax(most)), down = Inverse(unit);
  for (uint at = gl_SubgroupInvocationID; at < kDim / 8; at += kLanes) {
    const Eight e = LoadEight(query, at, rows);
    uvec4 high, low;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const vec2 pair = (i & 1) == 0 ? e.x[i / 2].xy : e.x[i / 2].zw;
      const uvec2 parts = HighLow(pair * down);
      high[i] = parts.x;
      low[i] = parts.y;
    }
    shared_rows[query * kQueryPitch + at] = high;
    shared_rows[kLow + query * kQueryPitch + at] = low;
  }
  if (gl_SubgroupInvocationID == 0) shared_scale[query] = unit * kScale;
}

void Prepare(uint rows) {
  if (me < kRows) StoreRow(me, first_row + me, rows);
  for (uint query = gl_SubgroupID; query < kQueries; query += kSubgroups) StoreQuery(query, rows);
  [[unroll]] for (uint i = 0; i < kDimMatrices * kQueryBlocks; ++i) result[i] = Sums(0.0);
  running_max = -kInfinity;
  running_sum = 0.0;
  result_unit = kParts == 2 ? uintBitsToFloat(1u << 23) : 1.0;
  barrier();
}

// ---- which keys ---------------------------------------------------------------------------------

// By some query of this workgroup.
bool IsSeen(int slot, int pos, bool fresh, int past) {
  bool seen = false;
  for (uint row = 0; row < kRows; ++row) seen = seen || Sees(row, slot, pos, fresh, past);
  return seen;
}

// Keys of a slot's state at positions [begin, end), or fresh ones.
struct Segment {
  bool fresh;
  int slot, begin, end, past;
};

// The first of the 16 rows in which a block of keys lies, in rows of [kv_heads, dim].
uint FirstRowOf(const Segment s, int at, uint block) {
  const int first = at + int(block * kMatrix);
  if (s.fresh) return uint(min(first, int(kMaxFresh - kMatrix)));
  return uint(s.slot) * kCapacity + uint(first) % kCapacity;
}

// Keys of a tile that this invocation looks at. All subgroups look at the same.
int own_pos[kTurns], own_slot[kTurns];
bool own_seen[kTurns];
vec2 own_unit[kTurns];  // of the first subgroup's keys

// The blocks of a tile with keys that some query sees, and those with only such keys.
void LookAtKeys(const Segment s, int at, out uint seen_blocks, out uint whole_blocks) {
  const uint block_keys = (1u << kMatrix) - 1;
  seen_blocks = whole_blocks = 0;
  [[unroll]] for (uint turn = 0; turn < kTurns; ++turn) {
    const uint key = turn * kLanes + gl_SubgroupInvocationID;
    int row = at + int(key);  // of the fresh ones, or a position
    const int first = max(s.begin, row - int(key % kMatrix));
    if (s.fresh) row = int(FirstRowOf(s, at, key / kMatrix) + key % kMatrix);
    const bool there = row >= first && row < s.end;
    own_pos[turn] = row;
    own_slot[turn] = there ? s.slot : kNoSlot;
    if (s.fresh && there) {
      own_pos[turn] = I32(p.kv_pos).v[row];
      own_slot[turn] = I32(p.kv_slot).v[row];
    }
    own_seen[turn] = there && IsSeen(own_slot[turn], own_pos[turn], s.fresh, s.past);
    own_unit[turn] = vec2(0);
    if (kParts == 2 && gl_SubgroupID == 0 && own_seen[turn]) {
      const uint at_unit = uint(row) * kKvHeads + kv_head;
      own_unit[turn] = vec2(F32(p.k_state).v[at_unit], F32(p.v_state).v[at_unit]);
    }
    const uint seen = subgroupBallot(own_seen[turn]).x;
    [[unroll]] for (uint i = 0; i < kLanes / kMatrix; ++i) {
      const uint block = turn * (kLanes / kMatrix) + i;
      const uint keys = seen >> (i * kMatrix) & block_keys;
      if (keys != 0) seen_blocks |= 1u << block;
      if (keys == block_keys) whole_blocks |= 1u << block;
    }
  }
}

void StoreKeys() {
  const uint two_ones = 0x3C003C00u;  // of f16
  [[unroll]] for (uint turn = 0; turn < kTurns; ++turn) {
    const uint key = turn * kLanes + gl_SubgroupInvocationID;
    shared_key_pos[key] = own_pos[turn];
    shared_key_slot[key] = own_slot[turn];
    if (kParts == 2) shared_unit[key] = own_unit[turn];
    [[unroll]] for (uint i = 0; i < kMaskPitch; ++i) {
      shared_mask[key * kMaskPitch + i] = uvec4(own_seen[turn] ? two_ones : 0u);
    }
  }
}

// ---- one tile -----------------------------------------------------------------------------------

const uint kHeadVectors = kParts * kDim / 8;  // its high parts, then its low parts
const uint kHeadPitch = kKvHeads * kHeadVectors;
uvec2 HeadOf(uvec2 base, uint row) {
  return Advance(AdvanceBy(base, row, kHeadPitch * 16), kv_head * kHeadVectors * 16);
}

// Keys come to shared memory in chunks of some dims, so that all subgroups that need a block read
// it there. The chunks of a tile are those of the high parts of the keys, then those of the low
// parts.
const uint kChunks = kParts * kDim / 8 / kChunkVectors;
const uint kOwnVectors = kKeys * kChunkVectors / kThreads;
uvec4 own_vector[kOwnVectors];  // of a chunk that is on its way

void LoadChunk(uvec2 keys, const Segment s, int at, uint chunk) {
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) {
    const uint index = me + i * kSubgroups * kLanes, key = index / kChunkVectors;
    const uint row = FirstRowOf(s, at, key / kMatrix) + key % kMatrix;
    const uint vector = chunk * kChunkVectors + index % kChunkVectors;
    own_vector[i] = U32x4(HeadOf(keys, row)).v[vector];
  }
}

void StoreChunk() {
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) {
    const uint index = me + i * kSubgroups * kLanes;
    shared_score[index / kChunkVectors * kChunkPitch + index % kChunkVectors] = own_vector[i];
  }
}

// The scores of a block of queries and a block of keys; 0 if no query sees a key of it. The first
// chunk is on its way.
Sums Scores(uvec2 keys, const Segment s, int at, uint query_block, uint key_block, bool seen) {
  const uint kHighChunks = kDim / 8 / kChunkVectors;
  Sums high = Sums(0.0), low = Sums(0.0);
  for (uint chunk = 0; chunk < kChunks; ++chunk) {
    barrier();  // the last chunk, or the weights of the last tile, are used
    StoreChunk();
    barrier();
    if (chunk + 1 < kChunks) LoadChunk(keys, s, at, chunk + 1);
    if (!seen) continue;
    const bool is_low = kParts == 2 && chunk >= kHighChunks;
    const uint first = chunk % kHighChunks * kChunkVectors;
    [[unroll]] for (uint d = 0; d < kChunkVectors; d += kMatrix / 8) {
      Factors k, q;
      coopMatLoadNV(k, shared_score, key_block * kMatrix * kChunkPitch + d, kChunkPitch, true);
      const uint query_at = query_block * kMatrix * kQueryPitch + first + d;
      coopMatLoadNV(q, shared_rows, query_at, kQueryPitch, false);
      if (is_low) {
        low = coopMatMulAddNV(q, k, low);
      } else {
        high = coopMatMulAddNV(q, k, high);
        coopMatLoadNV(q, shared_rows, kLow + query_at, kQueryPitch, false);
        low = coopMatMulAddNV(q, k, low);
      }
    }
  }
  return high + low;
}

// Weights in place of scores; those of a query are this subgroup's alone.
void Softmax(const Segment s) {
  const uint query = me / kHelpers, helper = me % kHelpers;
  const uint at = query * kScorePitch + helper * 2;
  float score[8];
  float most = running_max;
  [[unroll]] for (uint i = 0; i < 8; ++i) {
    const uint key = helper * 8 + i;
    const bool sees =
        Sees(query / kGroup, shared_key_slot[key], shared_key_pos[key], s.fresh, s.past);
    const float unit = kParts == 2 ? shared_unit[key].x : 1.0;
    const float x = uintBitsToFloat(shared_score[at + i / 4][i & 3]) * (shared_scale[query] * unit);
    score[i] = sees ? x : -kInfinity;
    most = max(most, score[i]);
  }
  most = HelpersMax(most);
  // Values come in units of their own, and results have the largest unit so far.
  float unit_now = result_unit;
  if (kParts == 2) {
    [[unroll]] for (uint i = 0; i < 8; ++i) unit_now = max(unit_now, shared_unit[helper * 8 + i].y);
    unit_now = HelpersMax(unit_now);
  }
  const float down = Inverse(unit_now);
  float sum = 0.0;
  uvec4 high, low;
  [[unroll]] for (uint i = 0; i < 8; i += 2) {
    vec2 weight;
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      weight[j] = score[i + j] == -kInfinity ? 0.0 : Exp(score[i + j] - most) * kLargestWeight;
      sum += weight[j];
      if (kParts == 2) weight[j] *= shared_unit[helper * 8 + i + j].y * down;
    }
    const uvec2 parts = HighLow(weight);
    high[i / 2] = parts.x;
    low[i / 2] = parts.y;
  }
  const float factor = running_max == -kInfinity ? 0.0 : Exp(running_max - most);
  running_sum = running_sum * factor + HelpersSum(sum);
  running_max = most;
  subgroupBarrier();
  shared_score[query * kScorePitch + helper] = high;
  shared_score[query * kScorePitch + kKeys / 8 + helper] = low;
  StoreFactor(factor * (result_unit * down));
  result_unit = unit_now;
}

// Values that no query sees may be anything, also what times 0 is not 0.
void ClearUnseen(uint block, inout Factors v) {
  Factors mask;
  coopMatLoadNV(mask, shared_mask, block * kMatrix * kMaskPitch, kMaskPitch, false);
  [[unroll]] for (uint i = 0; i < v.length(); ++i) {
    if (mask[i] == float16_t(0)) v[i] = float16_t(0);
  }
}

// Adds the values of a block of keys times their weights.
void AddValues(uvec2 values, uint block, uint value_row, bool whole) {
  Factors high[kQueryBlocks], low[kQueryBlocks];
  [[unroll]] for (uint m = 0; m < kQueryBlocks; ++m) {
    const uint at = m * kMatrix * kScorePitch + block * (kMatrix / 8);
    coopMatLoadNV(high[m], shared_score, at, kScorePitch, false);
    coopMatLoadNV(low[m], shared_score, at + kKeys / 8, kScorePitch, false);
  }
  U32x4 from = U32x4(HeadOf(values, value_row));
  [[unroll]] for (uint n = 0; n < kDimMatrices; ++n) {
    const uint dim_at = (gl_SubgroupID * kDimMatrices + n) * (kMatrix / 8);
    Factors v, v_low;
    coopMatLoadNV(v, from.v, dim_at, kHeadPitch, false);
    if (kParts == 2) coopMatLoadNV(v_low, from.v, dim_at + kDim / 8, kHeadPitch, false);
    if (!whole) {
      ClearUnseen(block, v);
      if (kParts == 2) ClearUnseen(block, v_low);
    }
    [[unroll]] for (uint m = 0; m < kQueryBlocks; ++m) {
      const uint i = n * kQueryBlocks + m;
      result[i] = coopMatMulAddNV(high[m], v, result[i]);
      result[i] = coopMatMulAddNV(low[m], v, result[i]);
      if (kParts == 2) result[i] = coopMatMulAddNV(high[m], v_low, result[i]);
    }
  }
}

void Tile(uvec2 keys, uvec2 values, const Segment s, int at) {
  uint seen, whole;
  LoadChunk(keys, s, at, 0);  // in vain if no key is seen, but most are
  LookAtKeys(s, at, seen, whole);
  if (seen == 0) return;
  const uint query_block = gl_SubgroupID % kQueryBlocks, key_block = gl_SubgroupID / kQueryBlocks;
  const bool seen_block = (seen >> key_block & 1u) != 0;
  const Sums scores = Scores(keys, s, at, query_block, key_block, seen_block);
  barrier();  // the keys are used
  if (gl_SubgroupID == 0) StoreKeys();
  coopMatStoreNV(scores, shared_score,
                 query_block * kMatrix * kScorePitch + key_block * (kMatrix / 4), kScorePitch,
                 false);
  barrier();
  Softmax(s);
  if (kStats != 0) return;
  barrier();
  ScaleResults();
  [[unroll]] for (uint block = 0; block < kKeyBlocks; ++block) {
    if ((seen >> block & 1u) == 0) continue;
    AddValues(values, block, FirstRowOf(s, at, block), (whole >> block & 1u) != 0);
  }
}

// ---- all tiles ----------------------------------------------------------------------------------

void Old() {
  for (uint leader = 0; leader < kRows; ++leader) {
    const int slot = shared_slot[leader];
    if (slot < 0) continue;
    bool seen = false;
    for (uint row = 0; row < leader; ++row) seen = seen || shared_slot[row] == slot;
    if (seen) continue;
    const int past = I32(p.past).v[slot];
    int first = past;
    for (uint row = leader; row < kRows; ++row) {
      if (shared_slot[row] == slot) first = min(first, FirstOld(shared_pos[row], past));
    }
    first = max(first, max(past - int(kCapacity), 0));
    const Segment s = Segment(false, slot, first, past, past);
    // From a multiple of 16, so that blocks do not run over the end of the ring.
    for (int at = first & ~int(kMatrix - 1); at < past; at += int(kKeys)) {
      Tile(p.k_state, p.v_state, s, at);
    }
  }
}

void Fresh() {
  const int count = int(At(p.fresh, Step(p.step)));
  if (me == 0) {
    shared_first = count;
    shared_end = 0;
  }
  barrier();
  for (int i = int(me); i < count; i += int(gl_WorkGroupSize.x)) {
    if (!IsSeen(I32(p.kv_slot).v[i], I32(p.kv_pos).v[i], true, 0)) continue;
    atomicMin(shared_first, i);
    atomicMax(shared_end, i + 1);
  }
  barrier();
  const Segment s = Segment(true, 0, 0, count, 0);
  const int end = shared_end;
  for (int at = shared_first; at < end; at += int(kKeys)) Tile(p.k_new, p.v_new, s, at);
}

// The logarithms of the sums of exponentials.
void StoreStats(uint rows) {
  const uint query = me / kHelpers, row = first_row + query / kGroup;
  if (me % kHelpers != 0 || row >= rows) return;
  const float lse = running_sum > 0.0 ? running_max + Log(running_sum / kLargestWeight) : 0.0;
  F32(p.y).v[row * kHeads + first_head + query % kGroup] = lse;
}

void main() {
  me = gl_SubgroupID * kLanes + gl_SubgroupInvocationID;
  const uint rows = At(p.rows, Step(p.step));
  first_row = GROUP.z * kRows;
  if (first_row >= rows) return;
  const uint blocks = kHeads / kKvHeads / kGroup;  // workgroups of a key/value head
  kv_head = GROUP.y / blocks;
  first_head = GROUP.y * kGroup;
  Prepare(rows);
  if (kParts == 1) Old();
  Fresh();
  if (kStats != 0) {
    StoreStats(rows);
  } else {
    StoreResults(rows, running_sum > 0.0 ? result_unit / running_sum : 0.0);
  }
}
