// The product of one row, or of each of several, with a matrix of weights in blocks, by dot
// products of four bytes. Each workgroup brings up to kOwnRows rows of x, from row
// WORKGROUP_Y * kOwnRows on, into shared memory as integers of 16 bits, those of a run of 16 with
// one scale: high and low bytes apart, because a dot product takes bytes. A few lanes share a row
// of weights, and decode it once for all rows of the workgroup. Accumulates in f32, each row in the
// same order whatever kOwnRows is.
//
// With a mixture of experts the rows of weights are those of the experts chosen for the row, one
// expert after another; or, for the sum of what experts make of a part of the row each, side by
// side. kOwnRows is then 1.
#include "lanes.kernel"
#include "math.kernel"
#include "reduce.kernel"
#include "weights.kernel"

// A thread loads quads of a row some at a time, and decodes the chunks of some rows of weights.
STRUCT(Own) {
  float acc[kOwnRows * kHalves];
  RawChunk raw[kUnroll * kHalves];  // on their way
  uint rows;                        // of the workgroup, that exist
  uint expert;                      // the lanes of a subgroup know all experts of the row
};
OWN_VARIABLES

// Runs of 16 elements, as many as the chunks have, in groups of 16 (PlaceOf).
#define kRuns ((kMaxColumns + 255) / 256 * 16)

// For each row of the workgroup the high ones of all runs, then the low ones.
__shared__ uint4 shared_bytes[kOwnRows * 2 * kRuns];
__shared__ float2 shared_scale[kOwnRows * kRuns];  // and the sum of the run

// sum + the dot product of four signed bytes and four unsigned ones.
__forceinline__ int AddDot(uint a, uint b, int sum) {
  asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

// A plan of one row looks up no number of rows.
__forceinline__ uint FirstOwnRow() { return kOneRow != 0 ? 0 : WORKGROUP_Y * kOwnRows; }

// The place of a run of a chunk: eight chunks after each other, so that lanes next to each other
// read different banks.
__forceinline__ uint PlaceOf(uint chunk, uint run) {
  return (chunk >> 3) * 16 + run * 8 + (chunk & 7);
}

// The same of the run that has element 16 * i: ChunkAt the other way.
__forceinline__ uint PlaceOfRun(uint i) {
  if (kType == kQ4_K || kType == kQ5_K) {
    return PlaceOf((i >> 4) * 8 + ((i >> 2) & 3) * 2 + (i & 1), (i >> 1) & 1);
  }
  if (kType == kQ6_K) return PlaceOf((i >> 3) * 4 + (i & 3), (i >> 2) & 1);
  return PlaceOf(i >> 1, i & 1);
}

// The low bytes of four integers.
__forceinline__ uint Bytes(int4 x) {
  return __byte_perm(__byte_perm(x.x, x.y, 0x0040), __byte_perm(x.z, x.w, 0x0040), 0x5410);
}

// To nearest even, of what is below 2^22: added to 1.5 * 2^23, it is the low bits of the sum.
__forceinline__ int Rounded(float x) { return as_int(x + 12582912.0f) - 0x4B400000; }

// Quad `quad` of row `own` of the workgroup. Four threads, which follow each other, have a run.
__forceinline__ void StageQuad(ARGS_ uint own, uint quad, float4 x) {
  const float4 a = fabs(x);
  // max() may drop what is not a number: it becomes an infinite scale, and so a result that is
  // none.
  const bool is_number = !IsNan(a.x + a.y + a.z + a.w);
  float most = is_number ? fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)) : kInfinity;
  most = fmaxf(most, ShuffleXor(most, 1));
  most = fmaxf(most, ShuffleXor(most, 2));
  // 127 * 256: no high byte is beyond a signed one. What is too small for a reciprocal is 0.
  const float reciprocal = most > 1e-33f ? 32512.0f / most : 0.0f;
  const int4 q = make_int4(Rounded(x.x * reciprocal), Rounded(x.y * reciprocal),
                           Rounded(x.z * reciprocal), Rounded(x.w * reciprocal));
  int sum = q.x + q.y + q.z + q.w;
  sum += ShuffleXor(sum, 1);
  sum += ShuffleXor(sum, 2);
  if (quad >= push.k / 4) return;
  const uint place = PlaceOfRun(quad / 4), part = quad & 3;
  const int4 high =
      make_int4((q.x + 128) >> 8, (q.y + 128) >> 8, (q.z + 128) >> 8, (q.w + 128) >> 8);
  ((uint*)(shared_bytes + own * 2 * kRuns + place))[part] = Bytes(high);
  ((uint*)(shared_bytes + own * 2 * kRuns + kRuns + place))[part] = Bytes(q);
  const float scale = most * (1.0f / 32512.0f);
  if (part == 0) shared_scale[own * kRuns + place] = make_float2(scale, scale * float(sum));
}

__forceinline__ float4 QuadOf(ARGS_ const float4* row, uint quad) {
  return quad < push.k / 4 ? row[quad] : BROADCAST(0.0f);
}

// Lowering has norms as dispatches of their own: there is no prologue.
__forceinline__ void StageRow(ARGS_ uint own) {
  const uint turn = kTurns * THREADS, quads = push.k / 4;
  const float4* x = (const float4*)AdvanceBy(push.x, FirstOwnRow() + own, push.k * 4);
  float4 next[kTurns];
  UNROLL for (uint t = 0; t < kTurns; ++t) next[t] = QuadOf(ARGS x, t * THREADS + ME);
  for (uint first = 0; first < quads; first += turn) {
    float4 row[kTurns];
    UNROLL for (uint t = 0; t < kTurns; ++t) row[t] = next[t];
    // The next ones are on their way meanwhile.
    UNROLL for (uint t = 0; t < kTurns; ++t) {
      next[t] = QuadOf(ARGS x, first + turn + t * THREADS + ME);
    }
    UNROLL for (uint t = 0; t < kTurns; ++t) {
      if (first + t * THREADS < quads) StageQuad(ARGS own, first + t * THREADS + ME, row[t]);
    }
  }
}

__forceinline__ uint Chunks(const Push& push) { return push.k / 32; }

__forceinline__ uint ExpertOf(OWNED_ uint place) {
  return __shfl_sync(0xFFFFFFFFu, MINE(expert), place);
}

// One that does not exist fails the run, in place of which some other is read.
__forceinline__ void LoadExperts(OWNED_ ARGS_ uint lane) {
  const int expert = lane < push.used ? INTS(experts)[FirstOwnRow() * push.used + lane] : 0;
  const bool exists = expert >= 0 && expert < int(push.count);
  if (!exists) FAIL();
  MINE(expert) = exists ? uint(expert) : 0;
}

__forceinline__ WeightRow RowAt(OWNED_ ARGS_ uint weight_row, uint half_glu) {
  uint row = min(weight_row, push.n - 1);
  if (kExperts == kStacked) {
    const uint place = row / push.span;
    row += ExpertOf(OWNED place) * push.expert_rows - place * push.span;
  }
  const uint columns = kExperts == kSideBySide ? push.span * 32 : push.k;
  WeightRow weights;
  weights.base = AdvanceBy(half_glu == 0 ? push.weight : push.weight2, row, push.stride);
  weights.blocks = columns / kBlock;
  return weights;
}

// The weights for a chunk of the row, or for the last one if it is beyond that.
__forceinline__ RawChunk LoadChunk(OWNED_ ARGS_ WeightRow row, uint chunk) {
  chunk = min(chunk, Chunks(push) - 1);
  if (kExperts == kSideBySide) {
    const uint place = chunk / push.span;
    row.base = AdvanceBy(row.base, ExpertOf(OWNED place) * push.expert_rows, push.stride);
    chunk -= place * push.span;
  }
  return Load(row, chunk);
}

// The sum with the dot product of one run of 16 weights added.
__forceinline__ float AddDotRun(const Chunk& c, uint run, uint4 high, uint4 low, float2 scale,
                                float acc) {
  int sum_high = 0, sum_low = 0;
  const uint highs[4] = ELEMENTS(high), lows[4] = ELEMENTS(low);
  UNROLL for (uint i = 0; i < 4; ++i) {
    sum_high = AddDot(highs[i], c.word[run * 4 + i], sum_high);
    sum_low = AddDot(lows[i], c.word[run * 4 + i], sum_low);
  }
  acc = fma(c.scale[run] * scale.x, float(sum_high * 256 + sum_low), acc);
  if (kHasOffset) return fma(c.offset[run], scale.y, acc);
  return kBias != 0.0f ? fma(c.scale[run] * -kBias, scale.y, acc) : acc;
}

// Adds the chunk of each half that raw has at `i`. Beyond the last one it is the last one once
// more.
__forceinline__ void AddDotChunk(OWNED_ ARGS_ uint chunk, uint i) {
  const uint there = min(chunk, Chunks(push) - 1);
  const uint in_weights = kExperts == kSideBySide ? there % push.span : there;
  Chunk c[kHalves];
  UNROLL for (uint h = 0; h < kHalves; ++h) {
    c[h] = Unpack(MINE(raw)[i * kHalves + h], in_weights);
  }
  UNROLL for (uint run = 0; run < 2; ++run) {
    const uint place = PlaceOf(there, run);
    UNROLL for (uint own = 0; own < kOwnRows; ++own) {
      const uint bytes = own * 2 * kRuns + place;
      const uint4 high = shared_bytes[bytes], low = shared_bytes[kRuns + bytes];
      const float2 scale =
          chunk < Chunks(push) ? shared_scale[own * kRuns + place] : make_float2(0.0f, 0.0f);
      UNROLL for (uint h = 0; h < kHalves; ++h) {
        float& acc = MINE(acc)[own * kHalves + h];
        acc = AddDotRun(c[h], run, high, low, scale, acc);
      }
    }
  }
}

__forceinline__ bool IsGateOfExtra(const Push& push) {
  return kExperts == kNoExperts && kHalves == 1 && !IS_NULL(extra);
}

// The factor of the result of a row of weights, for row `own` of the workgroup.
__forceinline__ float ExtraOf(OWNED_ ARGS_ uint own, uint weight_row, uint end) {
  weight_row = min(weight_row, end - 1);
  if (kExperts == kStacked) {
    const uint place = weight_row / push.span;
    const uint expert = ExpertOf(OWNED place);
    const float weight = IS_NULL(extra) ? 1.0f : FLOATS(extra)[FirstOwnRow() * push.used + place];
    return IS_NULL(factor) ? weight : weight * FLOATS(factor)[expert];
  }
  if (!IsGateOfExtra(push)) return 1.0f;
  return own < MINE(rows) ? FLOATS(extra)[Offset(FirstOwnRow() + own) * push.n + weight_row] : 0.0f;
}

__forceinline__ void StoreResult(OWNED_ ARGS_ uint own, uint lane, uint weight_row, uint end,
                                 float extra) {
  float y = SumOfLanes(MINE(acc)[own * kHalves], push.lanes);
  if (kHalves == 2) {
    y = GeluTanh(y) * SumOfLanes(MINE(acc)[own * kHalves + kHalves - 1], push.lanes);
  }
  if (lane != 0 || weight_row >= end || own >= MINE(rows)) return;
  if (IsGateOfExtra(push)) y = GeluTanh(y);
  FLOATS(y)[Offset(FirstOwnRow() + own) * push.n + weight_row] = y * extra;
}

EARLY_KERNEL(matvec_dot) {
  NEW_OWN;
  MINE(rows) = 1;
  MINE(expert) = 0;
  if (kExperts != kNoExperts) WAIT_FOR_INPUTS();
  const uint lane = ME & (push.lanes - 1), group = ME / push.lanes;
  const uint groups = THREADS / push.lanes;  // that have a row of weights each
  // Rows of weights in equal shares, whatever their number.
  const uint begin = WORKGROUP * push.share + min(WORKGROUP, push.remainder);
  const uint end = begin + push.share + (WORKGROUP < push.remainder ? 1 : 0);
  if (kExperts != kNoExperts) LoadExperts(OWNED ARGS SUBGROUP_LANE);
  WeightRow rows[kHalves];
  UNROLL for (uint h = 0; h < kHalves; ++h) {
    rows[h] = RowAt(OWNED ARGS begin + group, h);
    UNROLL for (uint i = 0; i < kUnroll; ++i) {
      MINE(raw)[i * kHalves + h] = LoadChunk(OWNED ARGS rows[h], i * push.lanes + lane);
    }
  }
  // Weights are constant: the first of them are on their way before there is a row of x.
  if (kExperts == kNoExperts) WAIT_FOR_INPUTS();
  if (kOneRow == 0) {
    const uint rows_of_x = ROWS_OF(rows);
    if (FirstOwnRow() >= rows_of_x) return;
    MINE(rows) = min(rows_of_x - FirstOwnRow(), uint(kOwnRows));
  }
  // Rows that do not exist are left out: their results are not stored.
  for (uint own = 0; own < MINE(rows); ++own) StageRow(ARGS own);
  BARRIER();
  // A subgroup without a row leaves its time to the others.
  const uint first_together = begin + FirstTogether() / push.lanes;
  for (uint first_row = begin; first_row - begin + first_together < end; first_row += groups) {
    const uint weight_row = first_row + group;
    float extra[kOwnRows];
    UNROLL for (uint own = 0; own < kOwnRows; ++own) {
      extra[own] = ExtraOf(OWNED ARGS own, weight_row, end);
    }
    UNROLL for (uint i = 0; i < kOwnRows * kHalves; ++i) MINE(acc)[i] = 0.0f;
    const uint turn = push.lanes * kUnroll;
    for (uint first = 0; first < Chunks(push); first += turn) {
      // A chunk makes room for that of the next turn, or in the end for itself once more: a choice
      // would wait for it.
      const bool ends_row = first + turn >= Chunks(push);
      const bool ends = ends_row && first_row + groups >= end;
      const uint next = ends ? first : ends_row ? 0 : first + turn;
      if (ends_row && !ends) {
        UNROLL for (uint h = 0; h < kHalves; ++h) {
          rows[h] = RowAt(OWNED ARGS weight_row + groups, h);
        }
      }
      UNROLL for (uint i = 0; i < kUnroll; ++i) {
        AddDotChunk(OWNED ARGS first + i * push.lanes + lane, i);
        UNROLL for (uint h = 0; h < kHalves; ++h) {
          MINE(raw)[i * kHalves + h] = LoadChunk(OWNED ARGS rows[h], next + i * push.lanes + lane);
        }
      }
    }
    UNROLL for (uint own = 0; own < kOwnRows; ++own) {
      StoreResult(OWNED ARGS own, lane, weight_row, end, extra[own]);
    }
  }
}
