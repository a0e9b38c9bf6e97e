// The product of each of a few rows (2, 4 or 8) with a matrix of weights in blocks, on tensor
// cores: what matvec_dot.cuh computes of each row by itself, to the last bit. Each workgroup brings
// up to kOwnRows rows of x, from row WORKGROUP_Y * kOwnRows on, into shared memory as bytes
// (row_bytes.cuh), as many columns of them at a time as there is memory for.
//
// As in matvec_dot.cuh, `lanes` lanes share a row of weights, each of which decodes every lanes-th
// chunk. Here a lane has two rows of weights, of a gated product the gate's and the other one, and
// four lanes of each of eight such pairs are a warp. A tensor core multiplies codes of 16 rows of
// weights, from four lanes each, with bytes of eight columns. A column belongs to one lane of the
// four, and to one of two rows of x: it is 0 where other lanes have their codes. So a lane gets the
// sums of its own chunks, which are integers and thus exact, and adds them up in the order of
// matvec_dot.cuh.
#include "lanes.kernel"
#include "math.kernel"
#include "row_bytes.cuh"
#include "small_numbers.cuh"
#include "weights.kernel"

// Columns of a row that shared memory has room for: a whole row if it is short.
#define kSlice kMaxColumns
#define kRuns (kSlice / 16)
// Rows lie so that two of them are in different banks.
#define kRowStride (2 * kRuns + 4)
#define kScales (kPairs ? kRuns / 2 : kRuns)
#define kColumnPairs (kOwnRows / 2)  // rows of x of a product of tensor cores, in twos
#define kSums (2 * kOwnRows)         // of a lane
// Steps of a lane that are under way: a pair of chunks or a chunk, of two rows of weights.
#define kSteps 2
#define kChunksOfStep (kPairs ? 2u : 1u)
#define kWarps (THREADS / 32)
// Rows with norms whose quads a thread loads at a time.
#define kAtATime (kTurns > 1 ? 1u : kOwnRows == 4 ? 4u : 2u)
// What is not often repeated stays short.
#define ROLLED _Pragma("unroll 1")

// For each row of x the high bytes of all runs, then the low ones; scales and sums of the runs of
// each two rows; the sums of lanes.
extern __shared__ uint4 shared_memory[];
#define shared_scales ((float4*)(shared_memory + kOwnRows * kRowStride))
#define shared_sums ((float*)(shared_scales + kColumnPairs * kScales))
static_assert(sizeof(uint4) * (kOwnRows * kRowStride + kColumnPairs * kScales) +
                      sizeof(float) * kWarps * kSums * 32 <=
                  SHARED_BYTES,
              "a launch gives less memory");
static_assert(4 * kTurns * THREADS <= kSlice, "a row that is normed has room");
static_assert(kSlice == 2048 || kSlice % 4096 == 0, "a slice has whole steps of all lanes");

struct Own {
  float acc[kSums];                          // of the first row of weights, then of the second
  RawChunk raw[kSteps * 2 * kChunksOfStep];  // on their way
  uint4 b[2];    // bytes of x, which stay 0 in lanes whose column they are not of
  float factor;  // of the last norm of row SUBGROUP_LANE of the workgroup
  uint rows;     // of x, that exist
};

__forceinline__ uint ScalePlace(uint place) {
  return kPairs ? (place >> 4) * 8 + (place & 7) : place;
}

// ---- rows of x ----------------------------------------------------------------------------------

// A quad of row `own` of the workgroup, which has place `at` in shared memory. Bytes of several
// quads are made at the same time, and then stored where there are such rows. Beyond the end of a
// row there are zeros.
__forceinline__ void StoreQuad(uint own, uint at, const QuadBytes& bytes) {
  const uint place = PlaceOfRun(at / 4), part = at & 3;
  uint* row = (uint*)(shared_memory + own * kRowStride + place);
  row[part] = bytes.high;
  row[kRuns * 4 + part] = bytes.low;
  if (!HasScale(at)) return;
  const uint scale = (own / 2 * kScales + ScalePlace(place)) * 2 + own % 2;
  ((float2*)shared_scales)[scale] = bytes.scale;
}

__forceinline__ Memory RowOfX(ARGS_ Memory x, uint own) {
  return AdvanceBy(x, FirstOwnRow() + own, push.k * 4);
}

// The factors of norms whose squares are at `at` and after it: lane i has that of row i.
__forceinline__ float FactorOfLane(ARGS_ uint at, float eps) {
  const uint row = min(SUBGROUP_LANE, kOwnRows - 1);
  return InverseRoot(SquaresOfRow(at + row) / float(push.k) + eps);
}

// The factors of the first norm of all rows.
__forceinline__ float FindFactors(OWNED_ ARGS_ const Prologue& first) {
  constexpr uint kRowsAtOnce = kTurns > 1 ? 2 : kOwnRows;
  for (uint from = 0; from < MINE(rows); from += kRowsAtOnce) {
    float4 x[kRowsAtOnce * kTurns];
    UNROLL for (uint i = 0; i < kRowsAtOnce; ++i) {
      const uint own = min(from + i, MINE(rows) - 1);
      LoadQuads(ARGS x + i * kTurns, RowOfX(ARGS first.x, own), 0.0f);
    }
    UNROLL for (uint i = 0; i < kRowsAtOnce; ++i) NoteSquares(from + i, x + i * kTurns);
  }
  BARRIER();
  return FactorOfLane(ARGS 0, first.eps);
}

// Some rows before their norms.
struct SomeRows {
  float4 x[kAtATime * kTurns], residual[kAtATime * kTurns];
};
__forceinline__ void LoadRows(OWNED_ ARGS_ const Prologue& first, uint from, SomeRows& rows) {
  UNROLL for (uint i = 0; i < kAtATime; ++i) {
    const uint own = min(from + i, MINE(rows) - 1);
    LoadQuads(ARGS rows.x + i * kTurns, RowOfX(ARGS first.x, own), 0.0f);
    const Memory residual = first.residual == nullptr ? nullptr : RowOfX(ARGS first.residual, own);
    LoadQuads(ARGS rows.residual + i * kTurns, residual, 0.0f);
  }
}

// Rows that are normed, of which all columns have room. Of eight the next ones are on their way
// meanwhile.
__forceinline__ void StageNormedRows(OWNED_ ARGS_ const Prologue& first) {
  constexpr bool kAhead = kTurns == 1 && kOwnRows > kAtATime;
  const bool adds = first.residual != nullptr;
  float4 weight[kTurns], norm_weight[kTurns];
  LoadQuads(ARGS weight, first.weight, 1.0f);
  LoadQuads(ARGS norm_weight, first.norm_weight, 1.0f);
  SomeRows next;
  LoadRows(OWNED ARGS first, 0, next);
  const float factors = adds ? FindFactors(OWNED ARGS first) : 1.0f;
  ROLLED for (uint from = 0; from < MINE(rows); from += kAtATime) {
    if (!kAhead && from > 0) LoadRows(OWNED ARGS first, from, next);
    SomeRows rows = next;
    if (kAhead) LoadRows(OWNED ARGS first, from + kAtATime, next);
    QuadBytes bytes[kAtATime * kTurns];
    UNROLL for (uint i = 0; i < kAtATime; ++i) {
      const uint own = min(from + i, MINE(rows) - 1);
      float4* row = rows.x + i * kTurns;
      if (adds) {
        const float factor = __shfl_sync(0xFFFFFFFFu, factors, own);
        AddResidual(ARGS first, FirstOwnRow() + own, row, rows.residual + i * kTurns, weight,
                    factor, ScaleOf(ARGS first));
      }
      NoteSquares(own + kOwnRows, row);
      UNROLL for (uint t = 0; t < kTurns; ++t) {
        bytes[i * kTurns + t] = BytesOf(row[t] * norm_weight[t]);
      }
    }
    UNROLL for (uint i = 0; i < kAtATime; ++i) {
      UNROLL for (uint t = 0; t < kTurns; ++t) {
        if (from + i < MINE(rows) && t * THREADS < push.k / 4) {
          StoreQuad(from + i, t * THREADS + ME, bytes[i * kTurns + t]);
        }
      }
    }
  }
}

// The columns of a slice, of rows without norms. The next quads are on their way meanwhile.
#define kQuadsAtATime (kOwnRows < 4 ? 2u : 4u)
__forceinline__ void StageRows(OWNED_ ARGS_ uint slice) {
  const uint first = slice * (kSlice / 4), quads = min(push.k / 4 - first, kSlice / 4);
  const uint turns = (quads + THREADS - 1) / THREADS;
  float4 next[kQuadsAtATime];
  const auto load = [&](uint turn, uint from) {
    UNROLL for (uint i = 0; i < kQuadsAtATime; ++i) {
      const uint own = min(from + i, MINE(rows) - 1);
      next[i] = QuadOf(ARGS(const float4*) RowOfX(ARGS push.x, own), first + turn * THREADS + ME);
    }
  };
  load(0, 0);
  ROLLED for (uint turn = 0, from = 0; turn < turns;) {
    QuadBytes bytes[kQuadsAtATime];
    float4 x[kQuadsAtATime];
    UNROLL for (uint i = 0; i < kQuadsAtATime; ++i) x[i] = next[i];
    const uint at = turn * THREADS + ME, own = from;
    from += kQuadsAtATime;
    if (from >= MINE(rows)) {
      from = 0;
      ++turn;
    }
    load(turn, from);
    UNROLL for (uint i = 0; i < kQuadsAtATime; ++i) bytes[i] = BytesOf(x[i]);
    UNROLL for (uint i = 0; i < kQuadsAtATime; ++i) {
      if (own + i < MINE(rows)) StoreQuad(own + i, at, bytes[i]);
    }
  }
}

// The first slice, and the factors of the last norm.
__forceinline__ void Stage(OWNED_ ARGS_ const Prologue* first) {
  if (first != nullptr) {
    StageNormedRows(OWNED ARGS * first);
  } else {
    StageRows(OWNED ARGS 0);
  }
  BARRIER();
  const bool normed = first != nullptr && first->norm_eps >= 0.0f;
  MINE(factor) = normed ? FactorOfLane(ARGS kOwnRows, first->norm_eps) : 1.0f;
}

// ---- products -----------------------------------------------------------------------------------

// The rows of weights of a lane.
struct Rows {
  WeightRow row[2];
};

#define kTileRows (16 / kHalves)  // results of a tile, which a warp computes with others

__forceinline__ uint ResultOf(uint first, uint second) {
  return first + SUBGROUP_LANE / 4 + (kHalves == 1 ? 8 * second : 0);
}

// Those of a tile whose first result is `first`.
__forceinline__ Rows RowsOf(ARGS_ uint first, uint end) {
  Rows rows;
  UNROLL for (uint i = 0; i < 2; ++i) {
    const bool is_up = kHalves == 2 && i == 1;
    const uint row = min(ResultOf(first, i), end - 1);
    rows.row[i].base = AdvanceBy(is_up ? push.weight2 : push.weight, row, push.stride);
    rows.row[i].blocks = push.k / kBlock;
  }
  return rows;
}

// The first chunk of a step of a lane.
__forceinline__ uint ChunkOf(const Push& push, uint step, uint lane) {
  return (step * push.lanes + lane) * kChunksOfStep;
}

// Asks for the chunks of a step; beyond the end of the row for the last ones.
__forceinline__ void LoadStep(OWNED_ ARGS_ const Rows& rows, uint step, uint i, uint lane) {
  const uint chunk = min(ChunkOf(push, step, lane), Chunks(push) - kChunksOfStep);
  UNROLL for (uint row = 0; row < 2; ++row) {
    UNROLL for (uint c = 0; c < kChunksOfStep; ++c) {
      MINE(raw)[(i * 2 + row) * kChunksOfStep + c] = Load(rows.row[row], chunk + c);
    }
  }
}

// Sums of a product of tensor cores: two rows of x for the first row of weights, then the second.
struct Four {
  int of[4];
};

// sums + the products of eight codes of each row of weights with eight bytes of x. Sums begin
// with kSmallBits, so that their bits are those of a float (small_numbers.cuh).
__forceinline__ Four WithProducts(const Four& sums, uint first0, uint second0, uint first1,
                                  uint second1, uint x0, uint x1) {
  Four out;
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(out.of[0]), "=r"(out.of[1]), "=r"(out.of[2]), "=r"(out.of[3])
      : "r"(first0), "r"(second0), "r"(first1), "r"(second1), "r"(x0), "r"(x1), "r"(sums.of[0]),
        "r"(sums.of[1]), "r"(sums.of[2]), "r"(sums.of[3]));
  return out;
}
__forceinline__ void AddRunProducts(Four& sums, uint4 first, uint4 second, uint4 x) {
  sums = WithProducts(sums, first.x, second.x, first.y, second.y, x.x, x.y);
  sums = WithProducts(sums, first.z, second.z, first.w, second.w, x.z, x.w);
}
__forceinline__ Four NoSums() { return {{kSmallBits, kSmallBits, kSmallBits, kSmallBits}}; }

// Reads bytes in the lanes whose column they are of.
__forceinline__ void ReadBytes(uint4& to, const uint4* from, uint is_own) {
  asm("{.reg .pred own; setp.ne.u32 own, %5, 0; @own ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
      : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
      : "r"(uint(__cvta_generic_to_shared(from))), "r"(is_own)
      : "memory");
}

// Where a lane finds bytes and scales of a run: of the first of two rows of x.
struct RunOfX {
  const uint4* bytes;
  const float4* scale;
  uint is_own;
};
__forceinline__ RunOfX RunAt(uint place) {
  const uint column = SUBGROUP_LANE / 4;
  return {shared_memory + (column & 1) * kRowStride + place, shared_scales + ScalePlace(place),
          SUBGROUP_LANE % 4 == column / 2};
}

// What one run, or two that have a scale together, add to the sums of a lane.
struct Terms {
  float factor[2], offset[2];  // of both rows of weights
};

__forceinline__ void AddSums(OWNED_ const Four& high, const Four& low, float4 scale,
                             const Terms& terms, uint pair) {
  UNROLL for (uint i = 0; i < 4; ++i) {
    const float sum = fma(256.0f, OfSmallBits(high.of[i]), OfSmallBits(low.of[i]));
    const float of_x = i % 2 == 0 ? scale.x : scale.z, of_sum = i % 2 == 0 ? scale.y : scale.w;
    float& acc = MINE(acc)[i / 2 * kOwnRows + 2 * pair + i % 2];
    acc = fma(terms.factor[i / 2] * of_x, sum, acc);
    if (kHasOffset || kBias != 0.0f) acc = fma(terms.offset[i / 2], of_sum, acc);
  }
}

// A pair of chunks of q4_k, of which the first is even, as AddDotPair in matvec_dot.cuh.
__forceinline__ void AddPair(OWNED_ const RawChunk* raw, uint there, uint in_slice) {
  uint2 scales[2];
  float d[2], minimum[2];
  UNROLL for (uint row = 0; row < 2; ++row) {
    const uint4 header = raw[row * 2].vector[1];
    d[row] = HalfToFloat(header.x & 0xFFFFu);
    minimum[row] = -HalfToFloat(header.x >> 16);
    scales[row] = ScalesMins(header, (there & 7) >> 1);
  }
  UNROLL for (uint run = 0; run < 2; ++run) {
    const uint place = PlaceOf(in_slice, run), next = PlaceOf(in_slice | 1, run);
    const RunOfX x = RunAt(place);
    uint4 codes[4];
    Terms terms;
    UNROLL for (uint row = 0; row < 2; ++row) {
      codes[row] = (raw[row * 2].vector[0] >> (4 * run)) & kNibbles;
      codes[2 + row] = (raw[row * 2 + 1].vector[0] >> (4 * run)) & kNibbles;
      terms.factor[row] = d[row] * convert_float((scales[row].x >> (8 * run)) & 255u);
      terms.offset[row] = minimum[row] * convert_float((scales[row].y >> (8 * run)) & 255u);
    }
    UNROLL for (uint pair = 0; pair < kColumnPairs; ++pair) {
      const uint4* bytes = x.bytes + pair * 2 * kRowStride;
      const float4 scale = x.scale[pair * kScales];
      Four high = NoSums(), low = NoSums();
      UNROLL for (uint c = 0; c < 2; ++c) {
        ReadBytes(MINE(b)[0], bytes + c * (next - place), x.is_own);
        ReadBytes(MINE(b)[1], bytes + kRuns + c * (next - place), x.is_own);
        AddRunProducts(high, codes[c * 2], codes[c * 2 + 1], MINE(b)[0]);
        AddRunProducts(low, codes[c * 2], codes[c * 2 + 1], MINE(b)[1]);
      }
      AddSums(OWNED high, low, scale, terms, pair);
    }
  }
}

__forceinline__ uint4 WordsOf(const Chunk& c, uint run) {
  return make_uint4(c.word[run * 4], c.word[run * 4 + 1], c.word[run * 4 + 2], c.word[run * 4 + 3]);
}

// A chunk, as AddDotChunk in matvec_dot.cuh.
__forceinline__ void AddChunk(OWNED_ const RawChunk* raw, uint there, uint in_slice) {
  const uint place[2] = {PlaceOf(in_slice, 0), PlaceOf(in_slice, 1)};
  const Chunk c[2] = {Unpack(raw[0], there), Unpack(raw[1], there)};
  UNROLL for (uint run = 0; run < 2; ++run) {
    const RunOfX x = RunAt(place[run]);
    Terms terms;
    UNROLL for (uint row = 0; row < 2; ++row) {
      terms.factor[row] = c[row].scale[run];
      terms.offset[row] = kHasOffset ? c[row].offset[run] : c[row].scale[run] * -kBias;
    }
    UNROLL for (uint pair = 0; pair < kColumnPairs; ++pair) {
      const uint4* bytes = x.bytes + pair * 2 * kRowStride;
      ReadBytes(MINE(b)[0], bytes, x.is_own);
      ReadBytes(MINE(b)[1], bytes + kRuns, x.is_own);
      const float4 scale = x.scale[pair * kScales];
      Four high = NoSums(), low = NoSums();
      AddRunProducts(high, WordsOf(c[0], run), WordsOf(c[1], run), MINE(b)[0]);
      AddRunProducts(low, WordsOf(c[0], run), WordsOf(c[1], run), MINE(b)[1]);
      AddSums(OWNED high, low, scale, terms, pair);
    }
  }
}

__forceinline__ void AddStep(OWNED_ ARGS_ uint step, uint i, uint lane) {
  const uint chunk = ChunkOf(push, step, lane);
  const uint there = min(chunk, Chunks(push) - kChunksOfStep);
  const uint in_slice = chunk % (kSlice / 32);
  const RawChunk* raw = MINE(raw) + i * 2 * kChunksOfStep;
  if (kPairs) {
    AddPair(OWNED raw, there, in_slice);
  } else {
    AddChunk(OWNED raw, there, in_slice);
  }
}

// ---- results ------------------------------------------------------------------------------------

// The warps that have lanes of the same rows of weights wait for one another.
__forceinline__ void WaitForTeam(uint team, uint warps) {
  if (warps == 1) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" : : "r"(team + 1), "r"(warps * 32) : "memory");
  }
}

// The sum over the lanes that share a row of weights, in the order of SumOfLanes.
__forceinline__ float SumOfTeam(const float* sums, uint warps) {
  constexpr uint kMostWarps = 8, kStride = kSums * 32;
  float x[kMostWarps];
  UNROLL for (uint i = 0; i < kMostWarps; ++i) x[i] = i < warps ? sums[i * kStride] : 0.0f;
  UNROLL for (uint i = 1; i <= 3; ++i) {
    const uint mask = kMostWarps >> i;
    if (mask >= warps) continue;
    UNROLL for (uint j = 0; j < mask; ++j) x[j] += x[j + mask];
  }
  return SumOfLanes(x[0], 4);
}

__forceinline__ bool IsGateOfExtra(const Push& push) { return kHalves == 1 && !IS_NULL(extra); }

__forceinline__ void Store(OWNED_ ARGS_ uint own, uint result, uint end, float y) {
  if (SUBGROUP_LANE % 4 != 0 || result >= end) return;
  const Offset at = Offset(FirstOwnRow() + own) * push.n + result;
  FLOATS(y)[at] = IsGateOfExtra(push) ? GeluTanh(y) * FLOATS(extra)[at] : y;
}

// The results of a tile, of each row of x by one of the team's warps.
__forceinline__ void StoreTile(OWNED_ ARGS_ uint first, uint end, uint team, uint warps,
                               uint member) {
  float* sums = shared_sums + team * warps * kSums * 32 + SUBGROUP_LANE;
  UNROLL for (uint i = 0; i < kSums; ++i) sums[(member * kSums + i) * 32] = MINE(acc)[i];
  WaitForTeam(team, warps);
  for (uint own = member; own < MINE(rows); own += warps) {
    const float factor = __shfl_sync(0xFFFFFFFFu, MINE(factor), own);
    const float y = SumOfTeam(sums + own * 32, warps) * factor;
    const float y2 = SumOfTeam(sums + (kOwnRows + own) * 32, warps) * factor;
    if (kHalves == 2) {
      Store(OWNED ARGS own, ResultOf(first, 0), end, GeluTanh(y) * y2);
    } else {
      Store(OWNED ARGS own, ResultOf(first, 0), end, y);
      Store(OWNED ARGS own, ResultOf(first, 1), end, y2);
    }
  }
  WaitForTeam(team, warps);
}

EARLY_KERNEL(matvec_dot) {
  NEW_OWN;
  const uint begin = WORKGROUP * push.share + min(WORKGROUP, push.remainder);
  const uint end = begin + push.share + (WORKGROUP < push.remainder ? 1 : 0);
  const uint warps = push.lanes / 4, teams = kWarps / warps;
  const uint team = SUBGROUP_INDEX / warps, member = SUBGROUP_INDEX % warps;
  const uint lane = member * 4 + SUBGROUP_LANE % 4;
  const uint per_step = push.lanes * kChunksOfStep;
  const uint steps = (Chunks(push) + per_step - 1) / per_step;
  const uint of_slice = kSlice / 32 / per_step;
  const bool has_slices = kSlice > 2048 && steps > of_slice;  // short rows have one
  const Prologue* prologue = push.prologue;
  if (prologue != nullptr && SUBGROUP_INDEX == SUBGROUP_COUNT - 1) {
    PrefetchByLanes(prologue->weight, push.k * 4);
    PrefetchByLanes(prologue->norm_weight, push.k * 4);
  }
  uint first = begin + team * kTileRows;
  // Weights are constant: some are on their way before there is a row of x.
  Rows rows = RowsOf(ARGS first, end);
  if (first < end) {
    UNROLL for (uint i = 0; i < kSteps; ++i) {
      if (i < steps) LoadStep(OWNED ARGS rows, i, i, lane);
    }
  }
  WAIT_FOR_INPUTS();
  const uint rows_of_x = ROWS_OF(rows);
  if (FirstOwnRow() >= rows_of_x) return;
  MINE(rows) = min(rows_of_x - FirstOwnRow(), uint(kOwnRows));
  UNROLL for (uint i = 0; i < 2; ++i) MINE(b)[i] = make_uint4(0, 0, 0, 0);
  Stage(OWNED ARGS prologue);
  for (uint base = begin; base < end; base += teams * kTileRows) {
    const uint next_tile = first + teams * kTileRows;
    UNROLL for (uint i = 0; i < kSums; ++i) MINE(acc)[i] = 0.0f;
    for (uint step = 0; step < steps; step += kSteps) {
      if (has_slices && step % of_slice == 0 && (step > 0 || base > begin)) {
        BARRIER();
        StageRows(OWNED ARGS step / of_slice);
        BARRIER();
      }
      if (first >= end) continue;
      const bool ends_row = step + kSteps >= steps;
      const bool ends = ends_row && next_tile >= end;
      const uint next = ends_row ? 0 : step + kSteps;
      if (ends_row && !ends) rows = RowsOf(ARGS next_tile, end);
      UNROLL for (uint i = 0; i < kSteps; ++i) {
        if (step + i < steps) AddStep(OWNED ARGS step + i, i, lane);
        if (!ends && next + i < steps) LoadStep(OWNED ARGS rows, next + i, i, lane);
      }
    }
    if (first < end) StoreTile(OWNED ARGS first, end, team, warps, member);
    first = next_tile;
  }
}
