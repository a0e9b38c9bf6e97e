#version 460
// The product of one row, or of each of several, with a matrix of weights in blocks, by dot
// products of four bytes. Each workgroup brings up to kOwnRows rows of x, from row
// GROUP.y * kOwnRows on, into shared memory as integers of 16 bits, those of a run of 16 with one
// scale: high and low bytes apart, because a dot product takes bytes. A few lanes share a row of
// weights, and decode it once for all rows of the workgroup. Accumulates in f32, each row in the
// same order whatever kOwnRows is.
//
// With a mixture of experts the rows of weights are those of the experts chosen for the row, one
// expert after another; or, for the sum of what experts make of a part of the row each, side by
// side. kOwnRows is then 1.
//
// Little of a product is a constant here: in a step of one dispatch (persistent.comp) the code of
// all tasks takes turns, and code that misses the instruction cache costs more than the arithmetic
// that it saves.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "matvec_dot.args.glsl"
#include "math.kernel"
#include "weights.kernel"
#include "reduce.kernel"
#include "lanes.kernel"

#define kRowQuads (p.k / 4)
struct Own {
  vec4 x_row[kTurns];
};
OWN_VARIABLES
#include "prologue.kernel"
// Words that a workgroup leaves while others look for them (adapter.kernel, awaited.kernel).
#ifdef TASK
#define LEAVE_WORD(memory, i, x) \
  atomicStore(U32(memory).v[i], x, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed)
#define LOOK_AT_WORD(memory, i) \
  atomicLoad(U32(memory).v[i], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed)
#define STUCK()                                                                              \
  atomicStore(Step(p.step).failed_op, kStuckStep, gl_ScopeDevice, gl_StorageSemanticsBuffer, \
              gl_SemanticsRelaxed)
#define IS_STUCK()                                                               \
  (atomicLoad(Step(p.step).failed_op, gl_ScopeDevice, gl_StorageSemanticsBuffer, \
              gl_SemanticsRelaxed) == kStuckStep)
#else
layout(buffer_reference, std430, buffer_reference_align = 4) volatile coherent buffer AwaitedU32 {
  uint v[];
};
#define LEAVE_WORD(memory, i, x) AwaitedU32(memory).v[i] = x
#define LOOK_AT_WORD(memory, i) AwaitedU32(memory).v[i]
layout(buffer_reference, std430, buffer_reference_align = 8) volatile coherent buffer SharedStep {
  uint t;
  uint r;
  uint failed_op;
};
#define STUCK() SharedStep(p.step).failed_op = kStuckStep
#define IS_STUCK() (SharedStep(p.step).failed_op == kStuckStep)
#endif
#include "adapter.kernel"

// Runs of 16 elements, as many as the chunks have, in groups of 16 (PlaceOf).
const uint kRuns = (kMaxColumns + 255) / 256 * 16;

// OpSUDot on vectors in words: signed bytes times unsigned ones.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [ 6018, 6019 ],
                  id = 4452) int SignedUnsignedDot(int a, uint b, spirv_literal int format);
const int kPackedBytes = 0;

// For each row of the workgroup the high ones of all runs, then the low ones.
shared uvec4 shared_bytes[kOwnRows * 2 * kRuns];
shared vec2 shared_scale[kOwnRows * kRuns];  // and the sum of the run

// A plan of one row looks up no number of rows: each wait for memory is felt on every level of a
// step.
uint FirstOwnRow() { return kOneRow != 0 ? 0 : GROUP.y * kOwnRows; }
// The rows of the workgroup that exist; set by main().
uint own_rows;

// The place of a run of a chunk: eight chunks after each other, so that lanes next to each other
// read different banks.
uint PlaceOf(uint chunk, uint run) { return (chunk >> 3) * 16 + run * 8 + (chunk & 7); }

// The same of the run that has element 16 * i. The inverse of ChunkAt.
uint PlaceOfRun(uint i) {
  if (kType == kQ4_K || kType == kQ5_K) {
    return PlaceOf((i >> 4) * 8 + ((i >> 2) & 3) * 2 + (i & 1), (i >> 1) & 1);
  }
  if (kType == kQ6_K) return PlaceOf((i >> 3) * 4 + (i & 3), (i >> 2) & 1);
  return PlaceOf(i >> 1, i & 1);
}

// Four integers, of which the low bytes are wanted.
uint Bytes(ivec4 x) {
  const uvec4 bytes = uvec4(x) & 255u;
  return bytes.x | (bytes.y << 8) | (bytes.z << 16) | (bytes.w << 24);
}

// Rounds values below 2^22 to nearest even: added to 1.5 * 2^23, they are the low bits of the sum.
ivec4 Rounded(vec4 x) { return floatBitsToInt(x + 12582912.0) - 0x4B400000; }

// Quad `quad` of row `own` of the workgroup. Four invocations, which follow each other, have a run.
void StageQuad(uint own, uint quad, vec4 x) {
  const vec4 a = abs(x);
  // max() may drop a NaN: it becomes an infinite scale here, and so a NaN in the result.
  const bool is_number = !IsNan(a.x + a.y + a.z + a.w);
  float most = is_number ? max(max(a.x, a.y), max(a.z, a.w)) : kInfinity;
  most = max(most, subgroupShuffleXor(most, 1));
  most = max(most, subgroupShuffleXor(most, 2));
  // 127 * 256: no high byte is beyond a signed one. Values too small for a reciprocal become 0.
  const float reciprocal = most > 1e-33 ? 32512.0 / most : 0.0;
  const ivec4 q = Rounded(x * reciprocal);
  int sum = q.x + q.y + q.z + q.w;
  sum += subgroupShuffleXor(sum, 1);
  sum += subgroupShuffleXor(sum, 2);
  if (quad >= p.k / 4) return;
  const uint place = PlaceOfRun(quad / 4), part = quad & 3;
  shared_bytes[own * 2 * kRuns + place][part] = Bytes((q + 128) >> 8);
  shared_bytes[own * 2 * kRuns + kRuns + place][part] = Bytes(q);
  const float scale = most * (1.0 / 32512.0);
  if (part == 0) shared_scale[own * kRuns + place] = vec2(scale, scale * float(sum));
}

Adapter adapter;             // if kAdapted; set by main()
vec4 first_a[kMostRowsOfA];  // the first quads of A of an invocation, on their way

void SetAdapter() {
  adapter = Adapter(p.extra, p.experts, p.extra, p.experts);
  if (kHalves != 2) return;
  const GatedAdapter gated = GatedAdapterAt(p.experts).v;
  adapter.b = gated.b;
  adapter.a2 = gated.a2;
  adapter.b2 = gated.b2;
}

void LoadA() {
  [[unroll]] for (uint i = 0; i < kMostRowsOfA; ++i) first_a[i] = QuadOfA(adapter, i, Index());
}

// The sums of the row with this workgroup's rows of A. A row with norms is in MINE(x_row).
void MultiplyByA(uint row_of_x, uvec2 x) {
  const bool has_norms = !IsNull(p.prologue);
  const vec4 first_x = has_norms ? MINE(x_row)[0] : QuadOf(x, true, Index(), 0.0);
  vec4 sums = vec4(Dot(first_a[0], first_x), Dot(first_a[1], first_x), Dot(first_a[2], first_x),
                   Dot(first_a[3], first_x));
  if (has_norms) {
    [[unroll]] for (uint t = 1; t < kTurns; ++t) {
      sums += QuadTimesA(adapter, RowPlace(t), MINE(x_row)[t]);
    }
  } else {
    const uint turn = gl_WorkGroupSize.x;
    for (uint quad = Index() + turn; quad < kRowQuads; quad += 2 * turn) {  // two at a time
      const vec4 next = QuadTimesA(adapter, quad + turn, QuadOf(x, true, quad + turn, 0.0));
      sums += QuadTimesA(adapter, quad, QuadOf(x, true, quad, 0.0)) + next;
    }
  }
  LeaveSums(row_of_x, sums);
}

// All that a workgroup does that multiplies with A.
void RunOfA() {
  LoadA();
  for (uint own = 0; own < own_rows; ++own) {
    const uint row_of_x = FirstOwnRow() + own;
    if (!IsNull(p.prologue)) LoadNormedRow(row_of_x);
    MultiplyByA(row_of_x, AdvanceBy(p.x, row_of_x, p.k * 4));
  }
}

void StageRow(uint own) {
  const uint turn = kTurns * gl_WorkGroupSize.x;
  const uint row_of_x = FirstOwnRow() + own;
  const uvec2 x = AdvanceBy(p.x, row_of_x, p.k * 4);
  if (IsNull(p.prologue)) {
    LoadRow(x, 0);
  } else {
    LoadNormedRow(row_of_x);  // all of it at once
  }
  for (uint first = 0; first < p.k / 4; first += turn) {
    vec4 row[kTurns];
    [[unroll]] for (uint t = 0; t < kTurns; ++t) row[t] = MINE(x_row)[t];
    LoadRow(x, first + turn);  // the next ones are on their way meanwhile
    [[unroll]] for (uint t = 0; t < kTurns; ++t) {
      if (first + t * gl_WorkGroupSize.x < p.k / 4) StageQuad(own, first + RowPlace(t), row[t]);
    }
  }
}

void StageRows() {
  // Rows that do not exist are left out: their results are not stored.
  if (kOneRow != 0) {
    StageRow(0);
  } else {
    for (uint own = 0; own < own_rows; ++own) StageRow(own);
  }
  barrier();
}

float acc[kOwnRows * kHalves];

RawChunk raw[kUnroll * kHalves];  // on their way

uint Chunks() { return p.k / 32; }

uint expert_of_lane = 0;  // the lanes of a subgroup know all experts of the row
uint ExpertOf(uint place) { return subgroupShuffle(expert_of_lane, place); }

// One that does not exist fails the run, in place of which some other is read.
void LoadExperts() {
  const uint lane = gl_SubgroupInvocationID;
  const int expert = lane < p.used ? I32(p.experts).v[FirstOwnRow() * p.used + lane] : 0;
  const bool exists = expert >= 0 && expert < int(p.count);
  if (!exists) Step(p.step).failed_op = p.op;
  expert_of_lane = exists ? uint(expert) : 0;
}

WeightRow RowAt(uint weight_row, uint half_glu) {
  const uvec2 weight = half_glu == 0 ? p.weight : p.weight2;
  uint row = min(weight_row, p.n - 1);
  if (kExperts == kStacked) {
    const uint place = row / p.span;
    row += ExpertOf(place) * p.expert_rows - place * p.span;
  }
  const uint columns = kExperts == kSideBySide ? p.span * 32 : p.k;
  return WeightRow(AdvanceBy(weight, row, p.stride), columns / kBlock);
}

// The weights for a chunk of the row, or for the last one if it is beyond that.
RawChunk LoadChunk(WeightRow row, uint chunk) {
  chunk = min(chunk, Chunks() - 1);
  if (kExperts == kSideBySide) {
    const uint place = chunk / p.span;
    row.base = AdvanceBy(row.base, ExpertOf(place) * p.expert_rows, p.stride);
    chunk -= place * p.span;
  }
  return Load(row, chunk);
}

// Adds the dot product of one run of 16 weights to `sum_at` of acc.
void AddRun(const Chunk c, uint sum_at, uint run, uvec4 high, uvec4 low, vec2 scale) {
  int sum_high = 0, sum_low = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    sum_high += SignedUnsignedDot(int(high[i]), c.word[run * 4 + i], kPackedBytes);
    sum_low += SignedUnsignedDot(int(low[i]), c.word[run * 4 + i], kPackedBytes);
  }
  const float sum = float(sum_high * 256 + sum_low);
  acc[sum_at] = fma(c.scale[run] * scale.x, sum, acc[sum_at]);
  if (kHasOffset) {
    acc[sum_at] = fma(c.offset[run], scale.y, acc[sum_at]);
  } else if (kBias != 0.0) {
    acc[sum_at] = fma(c.scale[run] * -kBias, scale.y, acc[sum_at]);
  }
}

// The chunk of each half that raw has at `i`. Beyond the last one it is the last one once more.
void AddChunk(uint chunk, uint i) {
  const uint there = min(chunk, Chunks() - 1);
  const uint in_weights = kExperts == kSideBySide ? there % p.span : there;
  Chunk c[kHalves];
  [[unroll]] for (uint h = 0; h < kHalves; ++h) c[h] = Unpack(raw[i * kHalves + h], in_weights);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    const uint place = PlaceOf(there, run);
    [[unroll]] for (uint own = 0; own < kOwnRows; ++own) {
      const uint bytes = own * 2 * kRuns + place;
      const uvec4 high = shared_bytes[bytes], low = shared_bytes[kRuns + bytes];
      const vec2 scale = chunk < Chunks() ? shared_scale[own * kRuns + place] : vec2(0);
      [[unroll]] for (uint h = 0; h < kHalves; ++h) {
        AddRun(c[h], own * kHalves + h, run, high, low, scale);
      }
    }
  }
}

bool IsGateOfExtra() { return kExperts == 0 && kHalves == 1 && kAdapted == 0 && !IsNull(p.extra); }

// The factor of the result of a row of weights, for row `own` of the workgroup.
float ExtraOf(uint own, uint weight_row, uint end) {
  weight_row = min(weight_row, end - 1);
  if (kExperts == kStacked) {
    const uint place = weight_row / p.span;
    const uint expert = ExpertOf(place);
    const float weight = IsNull(p.extra) ? 1.0 : F32(p.extra).v[FirstOwnRow() * p.used + place];
    return IsNull(p.factor) ? weight : weight * F32(p.factor).v[expert];
  }
  if (!IsGateOfExtra()) return 1.0;
  return own < own_rows ? F32(p.extra).v[(FirstOwnRow() + own) * p.n + weight_row] : 0.0;
}

// With an adapter an invocation keeps the sums of one row of weights, for each row of x and half:
// its place in its group of lanes is the turn over rows of weights that it keeps them of. So
// nothing waits for the sums with A before all products with weights are there, and then one
// subgroup awaits the sums of each row of x and half: if all of them looked, they would queue for
// the one place in memory.
float kept[kOwnRows * kHalves];
const uint kQuadsOfB = 2;
vec4 first_b[kQuadsOfB * kHalves];  // of that row, on their way
uint looked;                        // the bits of the sum that this invocation awaits

uvec2 RowOfB(uint half_glu, uint weight_row) {
  return AdvanceBy(half_glu == 0 ? adapter.b : adapter.b2, weight_row, p.span);
}

// Asks for the first quads of B, whose rows end in zeros. They are read as memory that tasks
// write: a compiler may delay loads of what nothing writes until it is used, when all would wait
// for it.
void LoadB(uint weight_row, uint end) {
  [[unroll]] for (uint i = 0; i < kQuadsOfB * kHalves; ++i) first_b[i] = vec4(0);
  if (weight_row >= end) return;
  [[unroll]] for (uint h = 0; h < kHalves; ++h) {
    const uvec2 row = RowOfB(h, weight_row);
    [[unroll]] for (uint i = 0; i < kQuadsOfB; ++i) {
      first_b[h * kQuadsOfB + i] = FLOAT4S_AT(row)[i];
    }
  }
}

void Keep(bool is_mine) {
  [[unroll]] for (uint i = 0; i < kOwnRows * kHalves; ++i) {
    const float sum = SumOfLanes(acc[i], p.lanes);
    if (is_mine) kept[i] = sum;
  }
}

// The place in memory of sum `i` of those that the workgroup awaits, in the order of shared memory.
uint PlaceOfAwaited(uint i) {
  return PlaceOfSum(FirstOwnRow() + i / (kHalves * kMostRank), i / kMostRank % kHalves,
                    min(i % kMostRank, p.count - 1));
}

uint Awaited() { return own_rows * kHalves * kMostRank; }

// Looks for the first sum that this invocation awaits, and does not wait for it.
void LookForSum() {
  if (Index() < Awaited()) looked = LOOK_AT_WORD(p.factor, PlaceOfAwaited(Index()));
}

// Brings the sums of each row of x and half into shared memory, where workgroups for A have others:
// kMostRank places for each, with zeros beyond the rank. With kTogether all subgroups take the same
// turns.
void AwaitSums() {
  const uint first_together = kTogether != 0 ? 0 : FirstTogether();
  for (uint first = 0; first + first_together < Awaited(); first += gl_WorkGroupSize.x) {
    const uint i = first + Index();
    if (i >= Awaited()) continue;
    const float sum = AwaitedSum(PlaceOfAwaited(i), first == 0 ? looked : kNoSumYet);
    shared_sums_of_a[i] = i % kMostRank < p.count ? sum : 0.0;
  }
  barrier();
}

vec4 QuadOfSums(uint at) {
  return vec4(shared_sums_of_a[at], shared_sums_of_a[at + 1], shared_sums_of_a[at + 2],
              shared_sums_of_a[at + 3]);
}

// The adapter's term of the result of a row of weights: its row of B times the sums with A.
float TimesB(uint own, uint half_glu, uint weight_row) {
  const uint at = (own * kHalves + half_glu) * kMostRank;
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < kQuadsOfB; ++i) {
    sum += Dot(first_b[half_glu * kQuadsOfB + i], QuadOfSums(at + i * 4));
  }
  for (uint i = kQuadsOfB; i * 4 < p.count; ++i) {
    sum += Dot(FLOAT4S_AT(RowOfB(half_glu, weight_row))[i], QuadOfSums(at + i * 4));
  }
  return sum;
}

void StoreKept(uint weight_row, uint end) {
  if (weight_row >= end) return;
  [[unroll]] for (uint own = 0; own < kOwnRows; ++own) {
    if (own >= own_rows) break;
    float y = kept[own * kHalves] + TimesB(own, 0, weight_row);
    if (kHalves == 2) {
      y = GeluTanh(y) * (kept[own * kHalves + kHalves - 1] + TimesB(own, kHalves - 1, weight_row));
    }
    F32(p.y).v[(FirstOwnRow() + own) * p.n + weight_row] = y;
  }
}

void Store(uint own, uint lane, uint weight_row, uint end, float extra) {
  float y = SumOfLanes(acc[own * kHalves], p.lanes);
  if (kHalves == 2) y = GeluTanh(y) * SumOfLanes(acc[own * kHalves + kHalves - 1], p.lanes);
  if (lane != 0 || weight_row >= end || own >= own_rows) return;
  if (IsGateOfExtra()) y = GeluTanh(y);
  F32(p.y).v[(FirstOwnRow() + own) * p.n + weight_row] = y * extra;
}

WeightRow rows[kHalves];  // whose first chunks are on their way; set by main()

// Multiplies rows of weights, a group of lanes one at a time: from row `from` of those of the
// workgroup, which end at `end`, to `stop`. `looks`: for the sum with A that it awaits after them.
void MultiplyRows(uint from, uint stop, uint end, bool looks) {
  const uint lane = Index() & (p.lanes - 1), group = Index() / p.lanes;
  const uint groups = gl_WorkGroupSize.x / p.lanes;  // that have a row of weights each
  // A subgroup without a row leaves its time to the others.
  const uint first_together = kTogether != 0 ? 0 : FirstTogether() / p.lanes;
  for (uint first_row = from; first_row + first_together < stop; first_row += groups) {
    const uint weight_row = first_row + group;
    float extra[kOwnRows];
    [[unroll]] for (uint own = 0; own < kOwnRows; ++own) extra[own] = ExtraOf(own, weight_row, end);
    [[unroll]] for (uint i = 0; i < kOwnRows * kHalves; ++i) acc[i] = 0.0;
    const uint turn = p.lanes * kUnroll;
    for (uint first = 0; first < Chunks(); first += turn) {
      // A chunk makes room for that of the next turn, or in the end for itself once more: a choice
      // would wait for it.
      const bool ends_row = first + turn >= Chunks();
      const bool ends = ends_row && first_row + groups >= end;
      const uint next = ends ? first : ends_row ? 0 : first + turn;
      if (ends_row && !ends) {
        [[unroll]] for (uint h = 0; h < kHalves; ++h) rows[h] = RowAt(weight_row + groups, h);
      }
      if (kAdapted != 0 && looks && ends_row && first_row + groups >= stop) LookForSum();
      [[unroll]] for (uint i = 0; i < kUnroll; ++i) {
        AddChunk(first + i * p.lanes + lane, i);
        [[unroll]] for (uint h = 0; h < kHalves; ++h) {
          raw[i * kHalves + h] = LoadChunk(rows[h], next + i * p.lanes + lane);
        }
      }
    }
    if (kAdapted != 0) {
      Keep(first_row - from == lane * groups);
      continue;
    }
    [[unroll]] for (uint own = 0; own < kOwnRows; ++own) {
      Store(own, lane, weight_row, end, extra[own]);
    }
  }
}

// The same with an adapter, as many rows at a time as there are invocations to keep the sums. The
// first ones of B are on their way.
void MultiplyAdaptedRows(uint begin, uint end) {
  const uint lane = Index() & (p.lanes - 1), group = Index() / p.lanes;
  const uint my_row = lane * (gl_WorkGroupSize.x / p.lanes) + group;
  looked = kNoSumYet;
  for (uint from = begin; from < end; from += gl_WorkGroupSize.x) {
    [[unroll]] for (uint i = 0; i < kOwnRows * kHalves; ++i) kept[i] = 0.0;
    const uint stop = min(from + gl_WorkGroupSize.x, end);
    MultiplyRows(from, stop, end, from == begin);
    if (from == begin) {
      AwaitSums();
    } else {
      LoadB(from + my_row, stop);
    }
    StoreKept(from + my_row, stop);
  }
}

void main() {
  own_rows = 1;
  if (kOneRow == 0) {
    const uint rows_of_x = At(p.rows, Step(p.step));
    if (FirstOwnRow() >= rows_of_x) return;
    own_rows = min(rows_of_x - FirstOwnRow(), kOwnRows);
  }
  const uint lane = Index() & (p.lanes - 1), group = Index() / p.lanes;
  // Rows of weights in equal shares, whatever their number.
  const uint sharer = GROUP.x - (kAdapted != 0 ? p.used : 0);
  const uint begin = sharer * p.share + min(sharer, p.remainder);
  const uint end = begin + p.share + (sharer < p.remainder ? 1 : 0);
  if (kAdapted != 0) {
    SetAdapter();
    if (IsOfA(GROUP.x)) {
      RunOfA();
      return;
    }
  }
  if (kExperts != 0) LoadExperts();
  [[unroll]] for (uint h = 0; h < kHalves; ++h) {
    rows[h] = RowAt(begin + group, h);
    // Also without rows: a variable that only some paths set stays live over all tasks.
    [[unroll]] for (uint i = 0; i < kUnroll; ++i) {
      raw[i * kHalves + h] = LoadChunk(rows[h], i * p.lanes + lane);
    }
  }
  if (kAdapted != 0) LoadB(begin + lane * (gl_WorkGroupSize.x / p.lanes) + group, end);
  StageRows();
  if (kAdapted != 0) {
    MultiplyAdaptedRows(begin, end);
  } else {
    MultiplyRows(begin, end, end, false);
  }
}
