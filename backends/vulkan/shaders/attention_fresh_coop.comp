#version 460
// Attention of the rows of a step among themselves on matrix units: the same as attention for
// the canvas mask, no old rows, and keys and values in f32. Queries, keys, values and weights are
// f16 numbers, or sums of two with two parts, whose three larger products are computed;
// to_half has made those of keys and values. A workgroup of four subgroups takes 64 query rows
// of a head and goes through the keys in tiles with a running softmax; each subgroup has 16 of the
// rows.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_fresh_coop.args.glsl"
#include "math.kernel"
#include "coop.glsl"
#include "high_low.kernel"

const uint kKeys = 64 / kParts;  // of a tile
const uint kKeyMatrices = kKeys / kMatrix;
const uint kDimMatrices = (kDim + kMatrix - 1) / kMatrix;  // dims beyond kDim are 0

// In vectors of 8 f16 or 4 f32; odd, so that rows begin in different banks.
const uint kVectors = kDimMatrices * kMatrix / 8;
const uint kPitch = kVectors + 1;
// A row of scores in f32, in whose place come its weights: high parts, low parts. Behind these
// comes a factor of the row, as 16 equal numbers.
const uint kFactorAt = kParts * kKeys / 8;
const uint kScoreVectors = kKeys / 4, kWeightVectors = kFactorAt + kMatrix / 4;
const uint kScorePitch = (kScoreVectors > kWeightVectors ? kScoreVectors : kWeightVectors) + 1;

// Where the high and low parts of keys and of values begin. In the beginning, those of the queries.
// Offsets of low parts are not used with one part.
const bool kTwoParts = kParts == 2;
const uint kKeyHigh = 0, kKeyLow = kKeys * kPitch;
const uint kValueHigh = kParts * kKeyLow, kValueLow = kValueHigh + kKeyLow;
const uint kQueryLow = kRows * kPitch;
shared uvec4 shared_rows[2 * kParts * kKeys * kPitch];
shared uvec4 shared_score[kRows * kScorePitch];
shared int shared_slot[kRows];  // of a query row; -1: no such row
shared float shared_query_unit[kRows];
shared vec4 shared_key_unit[kKeys / 4];  // 0: no row sees the key
shared vec4 shared_value_unit[kKeys / 4];

Factors query_high[kDimMatrices], query_low[kDimMatrices];
Sums result[kDimMatrices];
// Statistics of the row that this invocation shares with its neighbour.
float running_max, running_sum;
float result_unit;  // the factor of all results

uint me;
uint first_row, head, kv_head;

// A pair of values in f16; with two parts also the remainders that f16 rounds off.
uvec2 PartsOf(vec2 pair) { return kTwoParts ? HighLow(pair) : uvec2(packHalf2x16(pair), 0); }

// ---- eight dims of a row ------------------------------------------------------------------------

// Dims 8 * at to 8 * at + 7 of a row of f32.
Eight LoadEight(uvec2 row, uint at) {
  Eight e;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const uint four = at * 2 + i;
    e.x[i] = four * 4 < kDim ? F32x4(row).v[four] : vec4(0);
  }
  return e;
}

void StoreEight(const Eight e, float unit, uint high_at, uint low_at) {
  const float down = Inverse(unit);
  uvec4 high, low;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const vec2 pair = (i & 1) == 0 ? e.x[i / 2].xy : e.x[i / 2].zw;
    const uvec2 parts = PartsOf(pair * down);
    high[i] = parts.x;
    low[i] = parts.y;
  }
  shared_rows[high_at] = high;
  if (kTwoParts) shared_rows[low_at] = low;
}

// ---- queries ------------------------------------------------------------------------------------

// The rows of this subgroup, to its registers.
void LoadQueries(uint rows) {
  for (uint i = 0; i < kMatrix; ++i) {
    const uint query = gl_SubgroupID * kMatrix + i, row = first_row + query;
    Eight e = Eight(vec4[2](vec4(0), vec4(0)));
    if (row < rows && gl_SubgroupInvocationID < kVectors) {
      e = LoadEight(AdvanceBy(p.q, row * kHeads + head, kDim * 4), gl_SubgroupInvocationID);
    }
    const float unit = UnitOf(subgroupMax(Largest(e)));
    const uint at = query * kPitch + gl_SubgroupInvocationID;
    if (gl_SubgroupInvocationID < kVectors) StoreEight(e, unit, at, kQueryLow + at);
    if (gl_SubgroupInvocationID == 0) shared_query_unit[query] = unit * kScale;
  }
  subgroupBarrier();
  [[unroll]] for (uint d = 0; d < kDimMatrices; ++d) {
    const uint at = gl_SubgroupID * kMatrix * kPitch + d * (kMatrix / 8);
    coopMatLoadNV(query_high[d], shared_rows, at, kPitch, false);
    if (kTwoParts) coopMatLoadNV(query_low[d], shared_rows, kQueryLow + at, kPitch, false);
  }
}

void Prepare(uint rows) {
  if (me < kRows) {
    const uint row = first_row + me;
    const int slot = row < rows ? I32(p.q_slot).v[row] : -1;
    shared_slot[me] = slot < int(kSlots) ? slot : -1;
  }
  LoadQueries(rows);
  [[unroll]] for (uint d = 0; d < kDimMatrices; ++d) result[d] = Sums(0.0);
  running_max = -kInfinity;
  running_sum = 0.0;
  result_unit = UnitOf(0.0);  // the least unit: 0 times what is made of its inverse is 0
  barrier();
}

// ---- keys and values ----------------------------------------------------------------------------

// Rows of a key or a value: its high part, then its low part.
const uint kRowVectors = kParts * kVectors;
const uint kTileVectors = kKeys * kRowVectors;
const uint kOwn = (kTileVectors + kThreads - 1) / kThreads;  // vectors of an invocation
uvec4 own_key[kOwn], own_value[kOwn];
int own_slot[kOwn];  // of the key that a vector is from
float own_key_unit, own_value_unit;

// Loads keys of any slot, and the last key in place of those that are not there, so that no load
// waits for a slot; StoreTile() drops them.
void LoadTile(uint first_key, uint count, int slot) {
  const uint last = max(count, 1) - 1;
  if (me < kKeys) {
    const uint key = min(first_key + me, last), row = key * kKvHeads + kv_head;
    const bool is_seen = first_key + me < count && I32(p.kv_slot).v[key] == slot;
    own_key_unit = is_seen ? F32(p.key_units).v[row] : 0.0;
    own_value_unit = is_seen ? F32(p.value_units).v[row] : 0.0;
  }
  [[unroll]] for (uint i = 0; i < kOwn; ++i) {
    const uint index = me + i * kThreads, wanted = first_key + index / kRowVectors;
    const uint key = min(wanted, last), row = key * kKvHeads + kv_head, at = index % kRowVectors;
    own_slot[i] = wanted < count ? I32(p.kv_slot).v[key] : -1;
    own_key[i] = U32x4(AdvanceBy(p.keys, row, kRowVectors * 16)).v[at];
    own_value[i] = U32x4(AdvanceBy(p.values, row, kRowVectors * 16)).v[at];
  }
}

// Keys of other slots, and those that are not there, become rows of zeros: what memory has there
// may be anything.
void StoreTile(int slot) {
  [[unroll]] for (uint i = 0; i < kOwn; ++i) {
    const uint index = me + i * kThreads;
    if (index >= kTileVectors) continue;
    const uint part = index / kVectors % kParts;
    const uint at = index / kRowVectors * kPitch + index % kVectors + part * kKeyLow;
    const bool is_seen = own_slot[i] == slot;
    shared_rows[kKeyHigh + at] = is_seen ? own_key[i] : uvec4(0);
    shared_rows[kValueHigh + at] = is_seen ? own_value[i] : uvec4(0);
  }
  if (me < kKeys) {
    shared_key_unit[me / 4][me & 3] = own_key_unit;
    shared_value_unit[me / 4][me & 3] = own_value_unit;
  }
}

// ---- one tile -----------------------------------------------------------------------------------

uint ScoreRow() { return gl_SubgroupID * kMatrix * kScorePitch; }

// The scores of this subgroup's rows in units of their own, to shared memory.
void Scores() {
  [[unroll]] for (uint n = 0; n < kKeyMatrices; ++n) {
    Sums sum = Sums(0.0);
    [[unroll]] for (uint d = 0; d < kDimMatrices; ++d) {
      const uint at = n * kMatrix * kPitch + d * (kMatrix / 8);
      Factors high, low;
      coopMatLoadNV(high, shared_rows, kKeyHigh + at, kPitch, true);
      if (kTwoParts) {
        coopMatLoadNV(low, shared_rows, kKeyLow + at, kPitch, true);
        sum = coopMatMulAddNV(query_low[d], high, sum);
        sum = coopMatMulAddNV(query_high[d], low, sum);
      }
      sum = coopMatMulAddNV(query_high[d], high, sum);
    }
    coopMatStoreNV(sum, shared_score, ScoreRow() + n * (kMatrix / 4), kScorePitch, false);
  }
}

// The largest weight: so that the low parts of small ones are not subnormal.
const float kLargestWeight = 4096.0;

void StoreFactor(uint row_at, float factor) {
  const uint half_row = gl_SubgroupInvocationID % 2;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    shared_score[row_at + kFactorAt + half_row * 2 + i] = uvec4(floatBitsToUint(factor));
  }
}

// Factors in f16 lose more than the hardware's exponential does.
float Exponential(float x) { return kTwoParts ? ExpOfNegative(x) : exp2(x * 1.44269504); }

// Vector `j` of half of a row of scores. The halves take turns of four vectors, which lie in banks
// of their own.
uint ScoreVector(uint half_row, uint j) { return j / 4 * 8 + half_row * 4 + j % 4; }

// Weights in place of scores. Two invocations share a row, each with half of the keys.
void Softmax(int slot) {
  const uint row = gl_SubgroupID * kMatrix + gl_SubgroupInvocationID / 2;
  const uint half_row = gl_SubgroupInvocationID % 2, row_at = row * kScorePitch;
  const uint kOwnVectors = kKeys / 8;
  const bool sees = shared_slot[row] == slot;
  const float query_unit = shared_query_unit[row];
  vec4 score[kOwnVectors];
  vec4 most4 = vec4(running_max), unit4 = vec4(result_unit);
  [[unroll]] for (uint j = 0; j < kOwnVectors; ++j) {
    const uint at = ScoreVector(half_row, j);
    const vec4 key_unit = shared_key_unit[at];
    const vec4 scores = uintBitsToFloat(shared_score[row_at + at]) * (query_unit * key_unit);
    score[j] = mix(vec4(-kInfinity), scores, greaterThan(sees ? key_unit : vec4(0), vec4(0)));
    most4 = max(most4, score[j]);
    // Values come in units of their own, and results have the largest unit so far.
    unit4 = max(unit4, shared_value_unit[at]);
  }
  const vec2 most2 = max(most4.xy, most4.zw), unit2 = max(unit4.xy, unit4.zw);
  float most = max(most2.x, most2.y), unit_now = max(unit2.x, unit2.y);
  most = max(most, subgroupShuffleXor(most, 1));
  unit_now = max(unit_now, subgroupShuffleXor(unit_now, 1));
  const float down = kLargestWeight * Inverse(unit_now);
  const float base = most == -kInfinity ? 0.0 : most;
  vec4 sum4 = vec4(0);
  uvec4 high[kOwnVectors / 2], low[kOwnVectors / 2];
  [[unroll]] for (uint j = 0; j < kOwnVectors; ++j) {
    vec4 weight;
    [[unroll]] for (uint i = 0; i < 4; ++i) weight[i] = Exponential(score[j][i] - base);
    sum4 += weight;
    weight *= shared_value_unit[ScoreVector(half_row, j)] * down;
    const uvec2 first = PartsOf(weight.xy), second = PartsOf(weight.zw);
    high[j / 2][j % 2 * 2] = first.x;
    high[j / 2][j % 2 * 2 + 1] = second.x;
    low[j / 2][j % 2 * 2] = first.y;
    low[j / 2][j % 2 * 2 + 1] = second.y;
  }
  const vec2 sum2 = sum4.xy + sum4.zw;
  const float sum = sum2.x + sum2.y;
  const float factor = Exponential(running_max - base);
  running_sum = running_sum * factor + (sum + subgroupShuffleXor(sum, 1));
  running_max = most;
  subgroupBarrier();  // all scores of the row are read
  [[unroll]] for (uint j = 0; j < kOwnVectors / 2; ++j) {
    const uint at = row_at + ScoreVector(half_row, j * 2) / 2;
    shared_score[at] = high[j];
    if (kTwoParts) shared_score[at + kKeys / 8] = low[j];
  }
  StoreFactor(row_at, factor * (result_unit * Inverse(unit_now)));
  result_unit = unit_now;
  subgroupBarrier();
}

void ScaleResults() {
  Sums factor;
  coopMatLoadNV(factor, shared_score, ScoreRow() + kFactorAt, kScorePitch, false);
  [[unroll]] for (uint d = 0; d < kDimMatrices; ++d) {
    [[unroll]] for (uint i = 0; i < factor.length(); ++i) result[d][i] *= factor[i];
  }
}

void AddValues() {
  [[unroll]] for (uint n = 0; n < kKeyMatrices; ++n) {
    Factors weight_high, weight_low;
    const uint weight_at = ScoreRow() + n * (kMatrix / 8);
    coopMatLoadNV(weight_high, shared_score, weight_at, kScorePitch, false);
    if (kTwoParts) {
      coopMatLoadNV(weight_low, shared_score, weight_at + kKeys / 8, kScorePitch, false);
    }
    [[unroll]] for (uint d = 0; d < kDimMatrices; ++d) {
      const uint at = n * kMatrix * kPitch + d * (kMatrix / 8);
      Factors high, low;
      coopMatLoadNV(high, shared_rows, kValueHigh + at, kPitch, false);
      if (kTwoParts) {
        coopMatLoadNV(low, shared_rows, kValueLow + at, kPitch, false);
        result[d] = coopMatMulAddNV(weight_low, high, result[d]);
        result[d] = coopMatMulAddNV(weight_high, low, result[d]);
      }
      result[d] = coopMatMulAddNV(weight_high, high, result[d]);
    }
  }
}

// ---- all tiles ----------------------------------------------------------------------------------

void KeysOf(int slot) {
  const uint count = At(p.fresh, Step(p.step));
  LoadTile(0, count, slot);
  for (uint key = 0; key < count; key += kKeys) {
    barrier();  // the last tile is used
    StoreTile(slot);
    barrier();
    LoadTile(key + kKeys, count, slot);
    Scores();
    subgroupBarrier();
    Softmax(slot);
    ScaleResults();
    AddValues();
    subgroupBarrier();  // the weights are used
  }
}

void Store(uint rows) {
  const uint row_at = (gl_SubgroupID * kMatrix + gl_SubgroupInvocationID / 2) * kScorePitch;
  const float all = running_sum * kLargestWeight;
  StoreFactor(row_at, all > 0.0 ? result_unit / all : 0.0);
  subgroupBarrier();
  ScaleResults();
  [[unroll]] for (uint d = 0; d < kDimMatrices; ++d) {
    subgroupBarrier();
    coopMatStoreNV(result[d], shared_score, ScoreRow(), kScorePitch, false);
    subgroupBarrier();
    for (uint i = gl_SubgroupInvocationID; i < kMatrix * kMatrix; i += kLanes) {
      const uint row = first_row + gl_SubgroupID * kMatrix + i / kMatrix;
      const uint dim = d * kMatrix + i % kMatrix;
      if (row >= rows || dim >= kDim) continue;
      const uint at = ScoreRow() + i / kMatrix * kScorePitch + i % kMatrix / 4;
      F32(AdvanceBy(p.y, row * kHeads + head, kDim * 4)).v[dim] =
          uintBitsToFloat(shared_score[at][i & 3]);
    }
  }
}

void main() {
  me = gl_SubgroupID * kLanes + gl_SubgroupInvocationID;
  const uint rows = At(p.rows, Step(p.step));
  first_row = GROUP.z * kRows;
  if (first_row >= rows) return;
  head = GROUP.y;
  kv_head = head / (kHeads / kKvHeads);
  Prepare(rows);
  // Rows of several slots go through the keys once for each slot.
  for (uint leader = 0; leader < kRows; ++leader) {
    const int slot = shared_slot[leader];
    bool done = slot < 0;
    for (uint row = 0; row < leader && !done; ++row) done = shared_slot[row] == slot;
    if (!done) KeysOf(slot);
  }
  Store(rows);
}
