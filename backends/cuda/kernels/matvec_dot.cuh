// The product of one row, or of each of several, with a matrix of weights in blocks, by dot
// products of four bytes. Each workgroup brings up to kOwnRows rows of x, from row
// WORKGROUP_Y * kOwnRows on, into shared memory as integers of 16 bits, those of a run of 16 with
// one scale (row_bytes.cuh). A few lanes share a row of weights, and decode it once for all rows of
// the workgroup. Accumulates in f32, each row in the same order whatever kOwnRows is. Several rows
// with neither adapters nor experts have a kernel of their own (matvec_rows.cuh).
//
// With a mixture of experts the rows of weights are those of the experts chosen for the row, one
// expert after another; or, for the sum of what experts make of a part of the row each, side by
// side. kOwnRows is then 1.
//
// A row may be normed first (Prologue). The factor of the last norm is not known before all of a
// row has been read; it is applied to the results, so that nothing waits for it.
#include "lanes.kernel"
#include "math.kernel"
#include "reduce.kernel"
// adapter.kernel, awaited.kernel
#define LEAVE_WORD(memory, i, x) ((volatile uint*)(memory))[i] = x
#define LOOK_AT_WORD(memory, i) ((volatile uint*)(memory))[i]
#define STUCK() ((volatile Step*)push.step)->failed_op = kStuckStep
#define IS_STUCK() (((volatile Step*)push.step)->failed_op == kStuckStep)
#include "adapter.kernel"
#include "row_bytes.cuh"
#include "small_numbers.cuh"
#include "weights.kernel"

// Chunks of a row of weights that a lane has under way at a time: as many as there are registers
// for. Of a short row a lane has one pair, mostly: then fewer registers do, and the blocks of two
// kernels share a multiprocessor.
#ifdef OPEN
#define kIsShort false
#define kUnderWay 2
#else
#define kIsShort (kMaxColumns <= 2048)
#define kUnderWay (kIsShort ? 2 : !kPairs ? 4 : kHalves == 1 ? 8 : 4)
#endif

// A thread loads quads of a row some at a time, and decodes the chunks of some rows of weights.
STRUCT(Own) {
  float acc[kOwnRows * kHalves];
  float factor[kOwnRows];              // of the last norm of a row
  RawChunk raw[kUnderWay * kHalves];   // on their way
  uint first_sum[kOwnRows * kHalves];  // bits of a lane's first sum with A
  float first_b[kHalves];              // and its weight of B
  uint rows;                           // of the workgroup, that exist
  uint expert;                         // the lanes of a subgroup know all experts of the row
};
OWN_VARIABLES

// Runs of 16 elements, as many as the chunks have, in groups of 32 (PlaceOf). With pairs, two runs
// have a scale together.
#define kRuns ((kMaxColumns + 511) / 512 * 32)

// For each row of the workgroup the high ones of all runs, then the low ones.
__shared__ uint4 shared_bytes[kOwnRows * 2 * kRuns];
__shared__ float2 shared_scale[kOwnRows * kRuns];  // and the sum of the run
// Quads of a row without norms that a thread has under way, and makes bytes of at the same time.
#define kQuadsUnderWay (kIsShort ? 1 : 3)

// sum + the dot product of four signed bytes and four unsigned ones.
__forceinline__ int AddDot(uint a, uint b, int sum) {
  asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

// Bytes of quad `quad` of row `own` of the workgroup, if there is such a quad.
__forceinline__ void StoreQuad(ARGS_ uint own, uint quad, const QuadBytes& bytes) {
  if (quad >= push.k / 4) return;
  const uint place = PlaceOfRun(quad / 4), part = quad & 3;
  ((uint*)(shared_bytes + own * 2 * kRuns + place))[part] = bytes.high;
  ((uint*)(shared_bytes + own * 2 * kRuns + kRuns + place))[part] = bytes.low;
  if (HasScale(quad)) shared_scale[own * kRuns + place] = bytes.scale;
}

// A row before its last norm, and the weights of that: all that is read is on its way at once.
__forceinline__ void LoadNormedRow(ARGS_ const Prologue& first, uint own, float4* x,
                                   float4* norm_weight) {
  const uint row = FirstOwnRow() + own;
  float4 residual[kTurns], weight[kTurns];
  LoadQuads(ARGS x, AdvanceBy(first.x, row, push.k * 4), 0.0f);
  const bool adds = first.residual != nullptr;
  if (adds) {
    LoadQuads(ARGS residual, AdvanceBy(first.residual, row, push.k * 4), 0.0f);
    LoadQuads(ARGS weight, first.weight, 1.0f);
  }
  LoadQuads(ARGS norm_weight, first.norm_weight, 1.0f);
  if (!adds) return;
  const float scale = ScaleOf(ARGS first);
  NoteSquares(own, x);
  BARRIER();
  const float factor = InverseRoot(SquaresOfRow(own) / float(push.k) + first.eps);
  AddResidual(ARGS first, row, x, residual, weight, factor, scale);
}

__forceinline__ void StageNormedRow(ARGS_ const Prologue& first, uint own) {
  float4 x[kTurns], norm_weight[kTurns];
  LoadNormedRow(ARGS first, own, x, norm_weight);
  NoteSquares(own + kOwnRows, x);
  QuadBytes bytes[kTurns];
  UNROLL for (uint t = 0; t < kTurns; ++t) bytes[t] = BytesOf(x[t] * norm_weight[t]);
  UNROLL for (uint t = 0; t < kTurns; ++t) {
    if (t * THREADS < push.k / 4) StoreQuad(ARGS own, t * THREADS + ME, bytes[t]);
  }
}

// The factor of the last norm, after all of the row has been staged.
__forceinline__ float FactorOf(ARGS_ const Prologue* first, uint own) {
  if (first == nullptr || first->norm_eps < 0.0f) return 1.0f;
  return InverseRoot(SquaresOfRow(own + kOwnRows) / float(push.k) + first->norm_eps);
}

// The sums of a row with this block's rows of A, of which a thread has the first quads. They have
// not the factor of the last norm, which results get.
__forceinline__ void MultiplyByA(ARGS_ const Adapter& adapter, const float4* first_a,
                                 const Prologue* first, uint own) {
  const uint row = FirstOwnRow() + own;
  const auto times_first = [&](float4 x) {
    return make_float4(Dot(first_a[0], x), Dot(first_a[1], x), Dot(first_a[2], x),
                       Dot(first_a[3], x));
  };
  float4 sums;
  if (first != nullptr) {
    float4 x[kTurns], norm_weight[kTurns];
    LoadNormedRow(ARGS * first, own, x, norm_weight);
    sums = times_first(x[0] * norm_weight[0]);
    UNROLL for (uint t = 1; t < kTurns; ++t) {
      sums += QuadTimesA(ARGS adapter, t * THREADS + ME, x[t] * norm_weight[t]);
    }
  } else {
    const float4* x = (const float4*)AdvanceBy(push.x, row, push.k * 4);
    sums = times_first(QuadOf(ARGS x, ME));
    UNROLL_TERMS for (uint quad = THREADS + ME; quad < push.k / 4; quad += THREADS) {
      sums += QuadTimesA(ARGS adapter, quad, x[quad]);
    }
  }
  LeaveSums(ARGS row, sums);
}

__forceinline__ Adapter AdapterOf(const Push& push) {
  Adapter adapter = {push.extra, push.experts, push.extra, push.experts};
  if (kHalves == 2) {
    const GatedAdapter* gated = (const GatedAdapter*)push.experts;
    adapter.b = gated->b;
    adapter.a2 = gated->a2;
    adapter.b2 = gated->b2;
  }
  return adapter;
}

// All that a block does that multiplies with A.
__forceinline__ void RunOfA(ARGS_ uint overlap) {
  const Adapter adapter = AdapterOf(push);
  const Prologue* first = push.prologue;
  float4 first_a[kMostRowsOfA];
  UNROLL for (uint i = 0; i < kMostRowsOfA; ++i) first_a[i] = QuadOfA(ARGS adapter, i, ME);
  if (push.k / 4 > THREADS) {
    for (uint i = 0; i < push.expert_rows; ++i) PrefetchAll(RowOfA(ARGS adapter, i), push.k * 4);
  }
  if (first != nullptr) {
    PrefetchAll(first->weight, push.k * 4);
    PrefetchAll(first->norm_weight, push.k * 4);
  }
  WAIT_FOR_INPUTS();
  const uint rows_of_x = kOneRow != 0 ? 1 : ROWS_OF(rows);
  for (uint own = 0; own < kOwnRows && FirstOwnRow() + own < rows_of_x; ++own) {
    MultiplyByA(ARGS adapter, first_a, first, own);
  }
}

// A row without norms, some quads at a time.
__forceinline__ void StageRow(ARGS_ uint own) {
  const uint turn = kQuadsUnderWay * THREADS, quads = push.k / 4;
  const float4* x = (const float4*)AdvanceBy(push.x, FirstOwnRow() + own, push.k * 4);
  float4 next[kQuadsUnderWay];
  UNROLL for (uint t = 0; t < kQuadsUnderWay; ++t) next[t] = QuadOf(ARGS x, t * THREADS + ME);
  for (uint first = 0; first < quads; first += turn) {
    float4 row[kQuadsUnderWay];
    UNROLL for (uint t = 0; t < kQuadsUnderWay; ++t) row[t] = next[t];
    // The next ones are on their way meanwhile.
    UNROLL for (uint t = 0; t < kQuadsUnderWay; ++t) {
      next[t] = QuadOf(ARGS x, first + turn + t * THREADS + ME);
    }
    QuadBytes bytes[kQuadsUnderWay];
    UNROLL for (uint t = 0; t < kQuadsUnderWay; ++t) bytes[t] = BytesOf(row[t]);
    UNROLL for (uint t = 0; t < kQuadsUnderWay; ++t) {
      if (first + t * THREADS < quads) StoreQuad(ARGS own, first + t * THREADS + ME, bytes[t]);
    }
  }
}

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

// The first chunk at `i` of the turn that begins at `first`, and that of a lane.
__forceinline__ uint FirstAt(const Push& push, uint first, uint i) {
  return first + (kPairs ? i & ~1u : i) * push.lanes;
}
__forceinline__ uint ChunkOf(const Push& push, uint first, uint i, uint lane) {
  return FirstAt(push, first, i) + (kPairs ? lane * 2 + (i & 1) : lane);
}
// Whether some lane of a warp has a chunk there.
__forceinline__ bool IsThere(const Push& push, uint first, uint i) {
  return i < (kPairs ? 2 : 1) || FirstAt(push, first, i) < Chunks(push);
}

// Asks for the chunk of each half at `i` of a turn.
__forceinline__ void LoadTurn(OWNED_ ARGS_ const WeightRow* rows, uint first, uint i, uint lane) {
  if (!IsThere(push, first, i)) return;
  UNROLL for (uint h = 0; h < kHalves; ++h) {
    MINE(raw)[i * kHalves + h] = LoadChunk(OWNED ARGS rows[h], ChunkOf(push, first, i, lane));
  }
}

// The sum with the dot product of one run of 16 weights added.
__forceinline__ float AddDotRun(const Chunk& c, uint run, uint4 high, uint4 low, float2 scale,
                                float acc) {
  int sum_high = kSmallBits, sum_low = kSmallBits;
  const uint highs[4] = ELEMENTS(high), lows[4] = ELEMENTS(low);
  UNROLL for (uint i = 0; i < 4; ++i) {
    sum_high = AddDot(highs[i], c.word[run * 4 + i], sum_high);
    sum_low = AddDot(lows[i], c.word[run * 4 + i], sum_low);
  }
  const float sum = fma(256.0f, OfSmallBits(sum_high), OfSmallBits(sum_low));
  acc = fma(c.scale[run] * scale.x, sum, acc);
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

// The sum with the dot product of 32 weights added, of which two vectors have the codes.
__forceinline__ float AddDotSubBlock(uint4 codes0, uint4 codes1, const uint4* bytes, float2 scale,
                                     float factor, float offset, float acc) {
  const uint codes[8] = {codes0.x, codes0.y, codes0.z, codes0.w,
                         codes1.x, codes1.y, codes1.z, codes1.w};
  int sum_high = kSmallBits, sum_low = kSmallBits;
  UNROLL for (uint i = 0; i < 8; ++i) {
    const uint highs[4] = ELEMENTS(bytes[i / 4]), lows[4] = ELEMENTS(bytes[2 + i / 4]);
    sum_high = AddDot(highs[i % 4], codes[i], sum_high);
    sum_low = AddDot(lows[i % 4], codes[i], sum_low);
  }
  const float sum = fma(256.0f, OfSmallBits(sum_high), OfSmallBits(sum_low));
  return fma(offset, scale.y, fma(factor * scale.x, sum, acc));
}

// Adds the pair of q4_k that raw has at `i` and i + 1 of each half, as AddDotChunk.
__forceinline__ void AddDotPair(OWNED_ ARGS_ uint chunk, uint i) {
  const uint there = min(chunk, Chunks(push) - 2), pair = (there & 7) >> 1;
  uint2 scales[kHalves];
  float d[kHalves], minimum[kHalves];
  UNROLL for (uint h = 0; h < kHalves; ++h) {
    const uint4 header = MINE(raw)[i * kHalves + h].vector[1];
    d[h] = HalfToFloat(header.x & 0xFFFFu);
    minimum[h] = -HalfToFloat(header.x >> 16);
    scales[h] = ScalesMins(header, pair);
  }
  UNROLL for (uint run = 0; run < 2; ++run) {
    const uint place = PlaceOf(there, run), next = PlaceOf(there + 1, run);
    UNROLL for (uint own = 0; own < kOwnRows; ++own) {
      const uint high = own * 2 * kRuns, low = high + kRuns;
      const uint4 bytes[4] = {shared_bytes[high + place], shared_bytes[high + next],
                              shared_bytes[low + place], shared_bytes[low + next]};
      const float2 scale =
          chunk < Chunks(push) ? shared_scale[own * kRuns + place] : make_float2(0.0f, 0.0f);
      UNROLL for (uint h = 0; h < kHalves; ++h) {
        float& acc = MINE(acc)[own * kHalves + h];
        acc = AddDotSubBlock((MINE(raw)[i * kHalves + h].vector[0] >> (4 * run)) & kNibbles,
                             (MINE(raw)[(i + 1) * kHalves + h].vector[0] >> (4 * run)) & kNibbles,
                             bytes, scale, d[h] * convert_float((scales[h].x >> (8 * run)) & 255u),
                             minimum[h] * convert_float((scales[h].y >> (8 * run)) & 255u), acc);
      }
    }
  }
}

// Adds what raw has at `i` of a turn; of pairs, at `i` and i + 1.
__forceinline__ void AddTurn(OWNED_ ARGS_ uint first, uint i, uint lane) {
  if (!IsThere(push, first, i)) return;
  const uint chunk = ChunkOf(push, first, i, lane);
  if (kPairs) {
    AddDotPair(OWNED ARGS chunk, i);
  } else {
    AddDotChunk(OWNED ARGS chunk, i);
  }
}

__forceinline__ bool IsGateOfExtra(const Push& push) {
  return kExperts == kNoExperts && kHalves == 1 && kAdapted == 0 && !IS_NULL(extra);
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

// The sum that a lane has first: lanes beyond the rank have some sum, times 0.
__forceinline__ uint FirstSum(const Push& push, uint lane) { return min(lane, push.count - 1); }

__forceinline__ const float* RowOfB(ARGS_ const Adapter& adapter, uint half_glu, uint weight_row) {
  const Memory b = half_glu == 0 ? adapter.b : adapter.b2;
  return FLOATS_AT(AdvanceBy(b, min(weight_row, push.n - 1), push.span));
}

__forceinline__ void LoadB(OWNED_ ARGS_ const Adapter& adapter, uint lane, uint weight_row) {
  UNROLL for (uint h = 0; h < kHalves; ++h) {
    const float b = RowOfB(ARGS adapter, h, weight_row)[FirstSum(push, lane)];
    MINE(first_b)[h] = lane < push.count ? b : 0.0f;
  }
}

// Looks for the first sums and waits for none.
__forceinline__ void LookForSums(OWNED_ ARGS_ uint lane) {
  UNROLL for (uint own = 0; own < kOwnRows; ++own) {
    if (own >= MINE(rows)) break;
    UNROLL for (uint h = 0; h < kHalves; ++h) {
      const Offset place = PlaceOfSum(ARGS FirstOwnRow() + own, h, FirstSum(push, lane));
      MINE(first_sum)[own * kHalves + h] = LOOK_AT_WORD(push.factor, place);
    }
  }
}

// Adds the terms of the adapter that a lane has to its sums.
__forceinline__ void AddB(OWNED_ ARGS_ const Adapter& adapter, uint lane, uint weight_row) {
  UNROLL for (uint own = 0; own < kOwnRows; ++own) {
    if (own >= MINE(rows)) break;
    UNROLL for (uint h = 0; h < kHalves; ++h) {
      const Offset place = PlaceOfSum(ARGS FirstOwnRow() + own, h, 0);
      uint& bits = MINE(first_sum)[own * kHalves + h];
      float& acc = MINE(acc)[own * kHalves + h];
      const float first = AwaitedSum(ARGS place + FirstSum(push, lane), bits);
      bits = as_uint(first);
      acc = fma(first, MINE(first_b)[h], acc);
      for (uint i = lane + push.lanes; i < push.count; i += push.lanes) {
        const float b = RowOfB(ARGS adapter, h, weight_row)[i];
        acc = fma(AwaitedSum(ARGS place + i, kNoSumYet), b, acc);
      }
    }
  }
}

__forceinline__ void StoreResult(OWNED_ ARGS_ uint own, uint lane, uint weight_row, uint end,
                                 float extra) {
  const float factor = MINE(factor)[own];
  float y = SumOfLanes(MINE(acc)[own * kHalves], push.lanes) * factor;
  if (kHalves == 2) {
    y = GeluTanh(y) * (SumOfLanes(MINE(acc)[own * kHalves + kHalves - 1], push.lanes) * factor);
  }
  if (lane != 0 || weight_row >= end || own >= MINE(rows)) return;
  if (IsGateOfExtra(push)) y = GeluTanh(y);
  FLOATS(y)[Offset(FirstOwnRow() + own) * push.n + weight_row] = y * extra;
}

#undef LEAST_BLOCKS
#define LEAST_BLOCKS (kIsShort ? 2 : 1)
EARLY_KERNEL(matvec_dot) {
  NEW_OWN;
  MINE(rows) = 1;
  MINE(expert) = 0;
  if (kExperts != kNoExperts) {
    WAIT_FOR_INPUTS();
    // Rows that a step does not have choose no experts.
    if (kOneRow == 0 && FirstOwnRow() >= ROWS_OF(rows)) return;
    LoadExperts(OWNED ARGS SUBGROUP_LANE);
  }
  const uint lane = ME & (push.lanes - 1), group = ME / push.lanes;
  const uint groups = THREADS / push.lanes;  // that have a row of weights each
  // Rows of weights in equal shares, whatever their number.
  const uint sharer = WORKGROUP - (kAdapted != 0 ? push.used : 0);
  const uint begin = sharer * push.share + min(sharer, push.remainder);
  const uint end = begin + push.share + (sharer < push.remainder ? 1 : 0);
  if (IsOfA(ARGS WORKGROUP)) return RunOfA(ARGS overlap);
  Adapter adapter;
  if (kAdapted != 0) adapter = AdapterOf(push);
  // The host wrote the record before the step. The last subgroup, which has the fewest rows, brings
  // it and what it names into caches: others would wait for it before they ask for weights.
  const Prologue* first = push.prologue;
  if (first != nullptr && SUBGROUP_INDEX == SUBGROUP_COUNT - 1) {
    PrefetchByLanes(first->weight, push.k * 4);
    PrefetchByLanes(first->norm_weight, push.k * 4);
  }
  // A subgroup without a row leaves its time and the memory's to the others.
  const uint first_together = begin + FirstTogether() / push.lanes;
  WeightRow rows[kHalves];
  UNROLL for (uint h = 0; h < kHalves; ++h) rows[h] = RowAt(OWNED ARGS begin + group, h);
  if (first_together < end) {
    UNROLL for (uint i = 0; i < kUnderWay; ++i) LoadTurn(OWNED ARGS rows, 0, i, lane);
  }
  if (kAdapted != 0) LoadB(OWNED ARGS adapter, lane, begin + group);
  if (ME == 0 && IsGateOfExtra(push)) Prefetch(push.extra + (FirstOwnRow() * push.n + begin) * 4);
  // Weights are constant: the first of them are on their way before there is a row of x.
  if (kExperts == kNoExperts) WAIT_FOR_INPUTS();
  if (kOneRow == 0) {
    const uint rows_of_x = ROWS_OF(rows);
    if (FirstOwnRow() >= rows_of_x) return;
    MINE(rows) = min(rows_of_x - FirstOwnRow(), uint(kOwnRows));
  }
  UNROLL for (uint i = 0; i < kOwnRows * kHalves; ++i) MINE(first_sum)[i] = kNoSumYet;
  // Rows that do not exist are left out: their results are not stored.
  for (uint own = 0; own < MINE(rows); ++own) {
    if (first == nullptr) {
      StageRow(ARGS own);
    } else {
      StageNormedRow(ARGS * first, own);
    }
  }
  BARRIER();
  UNROLL for (uint own = 0; own < kOwnRows; ++own) MINE(factor)[own] = FactorOf(ARGS first, own);
  for (uint first_row = begin; first_row - begin + first_together < end; first_row += groups) {
    const uint weight_row = first_row + group;
    float extra[kOwnRows];
    UNROLL for (uint own = 0; own < kOwnRows; ++own) {
      extra[own] = ExtraOf(OWNED ARGS own, weight_row, end);
    }
    UNROLL for (uint i = 0; i < kOwnRows * kHalves; ++i) MINE(acc)[i] = 0.0f;
    const uint turn = push.lanes * kUnderWay;
    for (uint first = 0; first < Chunks(push); first += turn) {
      // A chunk makes room for that of the next turn.
      const bool ends_row = first + turn >= Chunks(push);
      const bool ends = ends_row && first_row + groups >= end;
      const uint next = ends_row ? 0 : first + turn;
      if (kAdapted != 0 && ends_row && first_row == begin) LookForSums(OWNED ARGS lane);
      if (ends_row && !ends) {
        UNROLL for (uint h = 0; h < kHalves; ++h) {
          rows[h] = RowAt(OWNED ARGS weight_row + groups, h);
        }
      }
      constexpr uint kAtATime = kPairs ? 2 : 1;
      UNROLL for (uint i = 0; i < kUnderWay; i += kAtATime) {
        AddTurn(OWNED ARGS first, i, lane);
        if (ends) continue;
        UNROLL for (uint j = i; j < i + kAtATime; ++j) LoadTurn(OWNED ARGS rows, next, j, lane);
      }
    }
    if (kAdapted != 0) {
      AddB(OWNED ARGS adapter, lane, weight_row);
      LoadB(OWNED ARGS adapter, lane, weight_row + groups);
    }
    UNROLL for (uint own = 0; own < kOwnRows; ++own) {
      StoreResult(OWNED ARGS own, lane, weight_row, end, extra[own]);
    }
  }
}
