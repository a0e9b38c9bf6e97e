#version 460
// Attention of the rows of a step among themselves on matrix units: the same as attention.comp for
// the canvas mask, no old rows, and keys and values in f32. Queries, keys, values and weights are
// sums of two f16 numbers each, whose three larger products are computed; to_half.comp has made
// those of keys and values. A workgroup of four subgroups takes 64 query rows of a head and goes
// through the keys in tiles of 32 with a running softmax; each subgroup has 16 of the rows.
#extension GL_GOOGLE_include_directive : require
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "attention_fresh_coop.args.glsl"
#include "math.kernel"
#include "high_low.glsl"

const uint kMatrix = 16;  // rows, columns and terms of a cooperative matrix
const uint kLanes = 32;
const uint kSubgroups = 4;
const uint kThreads = kSubgroups * kLanes;
const uint kRows = kSubgroups * kMatrix;
const uint kKeys = 32;  // of a tile
const uint kKeyMatrices = kKeys / kMatrix;
const uint kDimMatrices = (kDim + kMatrix - 1) / kMatrix;  // dims beyond kDim are 0

// In vectors of 8 f16 or 4 f32; odd, so that rows begin in different banks.
const uint kVectors = kDimMatrices * kMatrix / 8;
const uint kPitch = kVectors + 1;
// A row of scores in f32, in whose place come its weights: high parts, low parts. A factor of the
// row follows, as 16 equal numbers.
const uint kFactorAt = kKeys / 4;
const uint kScorePitch = kFactorAt + kMatrix / 4 + 1;

// Where the high and low parts of keys and of values begin. In the beginning, those of the queries.
const uint kKeyHigh = 0, kKeyLow = kKeys * kPitch;
const uint kValueHigh = 2 * kKeyLow, kValueLow = 3 * kKeyLow;
const uint kQueryLow = kRows * kPitch;
shared uvec4 shared_rows[4 * kKeys * kPitch];
shared uvec4 shared_score[kRows * kScorePitch];
shared int shared_slot[kRows];  // of a query row; -1: no such row
shared int shared_key_slot[kKeys];
shared float shared_query_unit[kRows];
shared float shared_key_unit[kKeys];
shared float shared_value_unit[kKeys];

#define Sums fcoopmatNV<32, gl_ScopeSubgroup, kMatrix, kMatrix>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, kMatrix, kMatrix>

Factors query_high[kDimMatrices], query_low[kDimMatrices];
Sums result[kDimMatrices];
// Statistics of the row that this invocation shares with its neighbour.
float running_max, running_sum;
float result_unit;  // the factor of all results

uint me;
uint first_row, head, kv_head;

// ---- eight dims of a row ------------------------------------------------------------------------

struct Eight {
  vec4 x[2];
};

// Dims 8 * at to 8 * at + 7 of a row of f32.
Eight LoadEight(uvec2 row, uint at) {
  Eight e;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const uint four = at * 2 + i;
    e.x[i] = four * 4 < kDim ? F32x4(row).v[four] : vec4(0);
  }
  return e;
}

float Largest(const Eight e) {
  const vec4 most = max(abs(e.x[0]), abs(e.x[1]));
  return max(max(most.x, most.y), max(most.z, most.w));
}

void StoreEight(const Eight e, float unit, uint high_at, uint low_at) {
  const float down = Inverse(unit);
  uvec4 high, low;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const vec2 pair = (i & 1) == 0 ? e.x[i / 2].xy : e.x[i / 2].zw;
    const uvec2 parts = HighLow(pair * down);
    high[i] = parts.x;
    low[i] = parts.y;
  }
  shared_rows[high_at] = high;
  shared_rows[low_at] = low;
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
    coopMatLoadNV(query_low[d], shared_rows, kQueryLow + at, kPitch, false);
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
  result_unit = uintBitsToFloat(1u << 23);
  barrier();
}

// ---- keys and values ----------------------------------------------------------------------------

// Rows of a key or a value: its high part, then its low part.
const uint kTileVectors = 2 * kKeys * kVectors;
const uint kOwn = (kTileVectors + kThreads - 1) / kThreads;  // vectors of an invocation
uvec4 own_key[kOwn], own_value[kOwn];
int own_slot;
float own_key_unit, own_value_unit;

// Keys of other slots, and those that are not there, are rows of zeros: what memory has there may
// be anything.
void LoadTile(uint first_key, uint count, int slot) {
  own_slot = -1;
  own_key_unit = own_value_unit = 0.0;
  if (me < kKeys && first_key + me < count && I32(p.kv_slot).v[first_key + me] == slot) {
    const uint row = (first_key + me) * kKvHeads + kv_head;
    own_slot = slot;
    own_key_unit = F32(p.key_units).v[row];
    own_value_unit = F32(p.value_units).v[row];
  }
  [[unroll]] for (uint i = 0; i < kOwn; ++i) {
    const uint index = me + i * kThreads, key = first_key + index / (2 * kVectors);
    own_key[i] = own_value[i] = uvec4(0);
    if (index >= kTileVectors || key >= count || I32(p.kv_slot).v[key] != slot) continue;
    const uint row = key * kKvHeads + kv_head, at = index % (2 * kVectors);
    own_key[i] = U32x4(AdvanceBy(p.keys, row, kVectors * 32)).v[at];
    own_value[i] = U32x4(AdvanceBy(p.values, row, kVectors * 32)).v[at];
  }
}

void StoreTile() {
  [[unroll]] for (uint i = 0; i < kOwn; ++i) {
    const uint index = me + i * kThreads;
    if (index >= kTileVectors) continue;
    const uint part = index / kVectors % 2;
    const uint at = index / (2 * kVectors) * kPitch + index % kVectors + part * kKeyLow;
    shared_rows[kKeyHigh + at] = own_key[i];
    shared_rows[kValueHigh + at] = own_value[i];
  }
  if (me < kKeys) {
    shared_key_slot[me] = own_slot;
    shared_key_unit[me] = own_key_unit;
    shared_value_unit[me] = own_value_unit;
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
      coopMatLoadNV(low, shared_rows, kKeyLow + at, kPitch, true);
      sum = coopMatMulAddNV(query_low[d], high, sum);
      sum = coopMatMulAddNV(query_high[d], low, sum);
      sum = coopMatMulAddNV(query_high[d], high, sum);
    }
    coopMatStoreNV(sum, shared_score, ScoreRow() + n * (kMatrix / 4), kScorePitch, false);
  }
}

// The largest weight: so that the low parts of small ones are no subnormals.
const float kLargestWeight = 4096.0;

void StoreFactor(uint row_at, float factor) {
  const uint half_row = gl_SubgroupInvocationID % 2;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    shared_score[row_at + kFactorAt + half_row * 2 + i] = uvec4(floatBitsToUint(factor));
  }
}

// Weights in place of scores. Two invocations share a row, each with half of the keys.
void Softmax() {
  const uint row = gl_SubgroupID * kMatrix + gl_SubgroupInvocationID / 2;
  const uint half_row = gl_SubgroupInvocationID % 2, row_at = row * kScorePitch;
  const uint kOwnKeys = kKeys / 2;
  const float query_unit = shared_query_unit[row];
  const int slot = shared_slot[row];
  float score[kOwnKeys];
  float most = running_max;
  [[unroll]] for (uint i = 0; i < kOwnKeys; ++i) {
    const uint bits = shared_score[row_at + half_row * (kOwnKeys / 4) + i / 4][i & 3];
    const uint key = half_row * kOwnKeys + i;
    const bool sees = slot >= 0 && shared_key_slot[key] == slot;
    const float unit = query_unit * shared_key_unit[key];
    score[i] = sees ? uintBitsToFloat(bits) * unit : -kInfinity;
    most = max(most, score[i]);
  }
  most = max(most, subgroupShuffleXor(most, 1));
  // Values come in units of their own, and results have the largest unit so far.
  float unit_now = result_unit;
  [[unroll]] for (uint i = 0; i < kOwnKeys; ++i) {
    unit_now = max(unit_now, shared_value_unit[half_row * kOwnKeys + i]);
  }
  unit_now = max(unit_now, subgroupShuffleXor(unit_now, 1));
  const float down = kLargestWeight * Inverse(unit_now);
  float sum = 0.0;
  uvec4 high[kOwnKeys / 8], low[kOwnKeys / 8];
  [[unroll]] for (uint i = 0; i < kOwnKeys; i += 2) {
    vec2 weight;
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      weight[j] = score[i + j] == -kInfinity ? 0.0 : ExpOfNegative(score[i + j] - most);
      sum += weight[j];
      weight[j] *= shared_value_unit[half_row * kOwnKeys + i + j] * down;
    }
    const uvec2 parts = HighLow(weight);
    high[i / 8][i % 8 / 2] = parts.x;
    low[i / 8][i % 8 / 2] = parts.y;
  }
  const float factor = running_max == -kInfinity ? 0.0 : ExpOfNegative(running_max - most);
  running_sum = running_sum * factor + (sum + subgroupShuffleXor(sum, 1));
  running_max = most;
  subgroupBarrier();  // all scores of the row are read
  [[unroll]] for (uint i = 0; i < kOwnKeys / 8; ++i) {
    const uint at = row_at + half_row * (kOwnKeys / 8) + i;
    shared_score[at] = high[i];
    shared_score[at + kKeys / 8] = low[i];
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
    coopMatLoadNV(weight_low, shared_score, weight_at + kKeys / 8, kScorePitch, false);
    [[unroll]] for (uint d = 0; d < kDimMatrices; ++d) {
      const uint at = n * kMatrix * kPitch + d * (kMatrix / 8);
      Factors high, low;
      coopMatLoadNV(high, shared_rows, kValueHigh + at, kPitch, false);
      coopMatLoadNV(low, shared_rows, kValueLow + at, kPitch, false);
      result[d] = coopMatMulAddNV(weight_low, high, result[d]);
      result[d] = coopMatMulAddNV(weight_high, low, result[d]);
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
    StoreTile();
    barrier();
    LoadTile(key + kKeys, count, slot);
    Scores();
    subgroupBarrier();
    Softmax();
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
