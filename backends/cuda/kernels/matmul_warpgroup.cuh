// Products of many rows with a matrix of weights on the tensor cores of Hopper's devices: x in f16
// (to_half), weights decoded to f16 in the registers of those that multiply them, sums in f32. Two
// warpgroups multiply, kBlocks times 64 rows of weights each, with kTile rows of x; a third brings
// x into shared memory, some stages of 128 terms ahead.
//
// Each lane of four decodes a chunk of 32 terms of a stage. A product of 16 terms takes four of
// each lane, so x lies in that order: product j has elements 4 j to 4 j + 3 of the four chunks,
// first two of each, then the other two.
//
// Of a gated product, rows 0 to 7 of 16 are the gate's and the others those of the other matrix for
// the same results: a lane has both. Workgroups in z sum a part of the terms each; sum_parts adds
// their sums.
#include "low_rank.cuh"
#include "math.kernel"
#include "product.kernel"
#include "tile_rows.kernel"
#include "warpgroups.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr uint kMultipliers = 256;  // threads; those after them bring x
constexpr uint kBringers = THREADS - kMultipliers;
constexpr uint kBlocks = kColumns / 128;
constexpr uint kResults = kColumns / (kGlu + 1);  // of the tile
constexpr uint kSliceBytes = kTile * 128;         // of 64 terms of x
constexpr uint kStageBytes = 2 * kSliceBytes;
constexpr uint kAlignment = 1024;
// Stages that are multiplied, and stages of x that are on their way.
constexpr uint kRoom = (SHARED_BYTES - kAlignment) / kStageBytes;
constexpr uint kStages = kRoom / 2, kAhead = kRoom - kStages;
static_assert(kStages >= 2 && kTile <= 128 && kBringers == 128, "a launch gives other memory");
// Registers of a thread. A launch gives each 168, which the three warpgroups divide.
constexpr uint kOfMultipliers = kBlocks * kTile > 128 ? 216 : 176;
constexpr uint kOfBringers = 3 * 168 - 2 * kOfMultipliers;

extern __shared__ uint4 stages[];
__shared__ Barrier filled[kStages], used[kStages];
__shared__ float factors[kTile];  // of rows of x

// The stage of a step, and how often it was used before.
struct Place {
  uint stage = 0, parity = 0;
  __forceinline__ void Next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__forceinline__ uint FirstStage() {
  return (InShared(stages) + kAlignment - 1) / kAlignment * kAlignment;
}
__forceinline__ uint4 LoadShared(uint at) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
__forceinline__ void Store(uint at, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// ---- x ------------------------------------------------------------------------------------------

// A thread brings a vector of 8 terms of each of four chunks, of a row of each 32 rows: first as
// they are, to a place of its own, then in the order of products.
constexpr uint kPieces = kTile / 32;

__forceinline__ uint OwnPlace(uint ahead, uint piece) {
  return FirstStage() + (kStages + ahead) * kStageBytes + piece * 4 * kBringers * 16 +
         (ME - kMultipliers) * 16;
}
constexpr uint kToNextChunk = kBringers * 16;

// x is zeros for chunks past the end and for rows that are null.
__forceinline__ void AskForX(ARGS_ const Memory* rows, uint step, uint ahead, uint part) {
  UNROLL for (uint q = 0; q < 4; ++q) {
    const uint chunk = step * 4 + q;
    const uint2 at = ChunkAt(chunk);
    const bool is_there = chunk * 32 < push.k;
    const uint term = is_there ? (part < 2 ? at.x : at.y) + part % 2 * 8 : 0;
    UNROLL for (uint i = 0; i < kPieces; ++i) {
      const bool has_row = rows[i] != nullptr;
      CopyLater(OwnPlace(ahead, i) + q * kToNextChunk, (has_row ? rows[i] : push.x) + term * 2,
                has_row && is_there ? 16 : 0);
    }
  }
}

// Two products of 16 terms: the first two and the last two elements of each four, of vector `part`
// of four chunks. Both slices are in the same banks, so that threads with parts of the second one
// store in another order.
__forceinline__ void StoreVectors(const uint4* v, uint stage, uint row, uint part) {
  const uint slice = stage + part / 2 * kSliceBytes + row * 128, vector = part % 2 * 4;
  const bool turned = part >= 2;
  const auto store = [&](uint i, uint4 a, uint4 b) {
    Store(
        slice + ((vector + (turned ? i ^ 1 : i)) ^ row % 8) * 16,
        make_uint4(turned ? b.x : a.x, turned ? b.y : a.y, turned ? b.z : a.z, turned ? b.w : a.w));
  };
  const uint4 x = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
  const uint4 y = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
  const uint4 z = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
  const uint4 w = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
  store(0, x, y);
  store(1, y, x);
  store(2, z, w);
  store(3, w, z);
}

__forceinline__ void StoreX(uint from, uint stage, uint row, uint part) {
  uint4 v[4];
  UNROLL for (uint q = 0; q < 4; ++q) v[q] = LoadShared(from + q * kToNextChunk);
  StoreVectors(v, stage, row, part);
}

// Whether a stage with the sums of adapters follows those of x.
__forceinline__ bool HasLowRank(const Push& push) {
  // Workgroups in z share the terms of x, and the first of them has those of the adapters.
  return kAdapted != 0 && WORKGROUP_Z == 0;
}

// Brings vector `part` of the four chunks of the adapters' sums.
__forceinline__ void BringLowRank(ARGS_ uint stage, uint row, uint part) {
  const LowRank& adapter = *(const LowRank*)push.extra;
  _Pragma("unroll 1") for (uint i = 0; i < kPieces; ++i) {
    uint4 v[4];
    UNROLL for (uint q = 0; q < 4; ++q) {
      const EightTerms terms = TermsOfSums(ARGS adapter, q, SHARED(row)[row + i * 32]);
      v[q] = part == 1 ? LowOf(terms) : part == 3 ? make_uint4(0, 0, 0, 0) : HighOf(terms);
    }
    StoreVectors(v, stage, row + i * 32, part);
  }
  ShowProducts();
}

__forceinline__ void BringX(ARGS_ uint begin, uint end) {
  const uint thread = ME - kMultipliers, row = thread / 4, part = thread % 4;
  Memory rows[kPieces];
  UNROLL for (uint i = 0; i < kPieces; ++i) {
    const int found = SHARED(row)[row + i * 32];
    rows[i] = found < 0 ? nullptr : push.x + Offset(found) * push.k * 2;
  }
  UNROLL for (uint ahead = 0; ahead < kAhead; ++ahead) {
    if (begin + ahead < end) AskForX(ARGS rows, begin + ahead, ahead, part);
    EndCopies();
  }
  if (thread < kTile) factors[thread] = FLOATS(factor)[max(SHARED(row)[thread], 0)];
  Place place;
  uint ahead = 0;
  for (uint step = begin; step < end; ++step) {
    WaitForCopies<kAhead - 1>();
    WaitFor(used[place.stage], place.parity ^ 1);
    UNROLL for (uint i = 0; i < kPieces; ++i) {
      StoreX(OwnPlace(ahead, i), FirstStage() + place.stage * kStageBytes, row + i * 32, part);
    }
    ShowProducts();
    Arrive(filled[place.stage]);
    if (step + kAhead < end) AskForX(ARGS rows, step + kAhead, ahead, part);
    EndCopies();
    ahead = ahead + 1 == kAhead ? 0 : ahead + 1;
    place.Next();
  }
  if (HasLowRank(push)) {
    WaitFor(used[place.stage], place.parity ^ 1);
    BringLowRank(ARGS FirstStage() + place.stage * kStageBytes, row, part);
    Arrive(filled[place.stage]);
  }
}

// ---- weights ------------------------------------------------------------------------------------

// Elements 4 i to 4 i + 3 of a chunk in f16, in two words.
__forceinline__ uint Halves(float low, float high) {
  uint bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__forceinline__ uint2 HalvesAt(const Chunk& c, uint i) {
  if (kBias >= 128.0f) {
    const float4 values = ValuesAt(c, i);
    return make_uint2(Halves(values.x, values.y), Halves(values.z, values.w));
  }
  // A code below 128, put below the exponent of 2, is 2 + code / 64.
  const float scale = c.scale[i / 4] * 64.0f;
  const float offset = c.offset[i / 4] - (128.0f + kBias) * c.scale[i / 4];
  const auto value = [&](uint selector) {
    return fma(as_float(__byte_perm(c.word[i], 0x40000000u, selector)), scale, offset);
  };
  return make_uint2(Halves(value(0x7044), value(0x7144)), Halves(value(0x7244), value(0x7344)));
}

// The chunk of a lane. Beyond the end it has another's, where x has zeros.
__forceinline__ uint ChunkOf(ARGS_ uint step) { return min(step * 4 + ME % 4, push.k / 32 - 1); }

// The rows of weights of a lane, and the chunks that it has loaded of them.
struct Rows {
  WeightRow row[2];
  RawChunk raw[2];

  __forceinline__ void Load(ARGS_ uint step) {
    UNROLL for (uint half = 0; half < 2; ++half) raw[half] = ::Load(row[half], ChunkOf(ARGS step));
  }
};

// The first result of a lane, of 16 rows of weights, and how far the second one is from it.
__forceinline__ uint ResultOf(uint first_result, uint block) {
  const uint row = (ME / 128 * kBlocks + block) * 64 + ME % 128 / 32 * 16;
  return first_result + row / (kGlu + 1) + ME % 32 / 4;
}
constexpr uint kToSecond = kGlu == 0 ? 8 : 0;

__forceinline__ void FindWeights(ARGS_ Rows& rows, uint first_result, uint first_weight_row,
                                 uint block) {
  UNROLL for (uint half = 0; half < 2; ++half) {
    const uint result = ResultOf(first_result, block) + half * kToSecond;
    rows.row[half] =
        RowOfWeights(ARGS kGlu == 0 ? 0 : half, first_weight_row + min(result, push.n - 1));
  }
}

__forceinline__ void Decode(Chunk* chunk, uint run, uint (*to)[4]) {
  UNROLL for (uint j = 0; j < 4; ++j) {
    UNROLL for (uint half = 0; half < 2; ++half) {
      ComputeFromHere(chunk[half].word[run * 4 + j]);
      const uint2 halves = HalvesAt(chunk[half], run * 4 + j);
      to[j][half] = halves.x;
      to[j][2 + half] = halves.y;
    }
  }
}

// Begins products with four steps of 16 terms, and ends those before them.
__forceinline__ void Multiply(float* sums, const uint (*weights)[4], uint slice) {
  BeginProducts();
  UNROLL for (uint j = 0; j < 4; ++j) MultiplyRows<kTile>(sums, weights[j], slice + j * 32);
  EndProducts<1>();
}

// Rows of B of a lane's weights: quads of high numbers, then of low ones.
__forceinline__ void LoadB(ARGS_ uint first_result, uint block, uint (*weights)[4]) {
  const LowRank& adapter = *(const LowRank*)push.extra;
  UNROLL for (uint second = 0; second < 2; ++second) {
    const uint result = ResultOf(first_result, block) + second * kToSecond;
    const EightTerms terms = TermsOfB(ARGS adapter, ME % 4, kGlu == 0 ? 0 : second, result);
    const uint4 parts[2] = {HighOf(terms), LowOf(terms)};
    UNROLL for (uint i = 0; i < 2; ++i) {
      weights[2 * i][second] = parts[i].x;
      weights[2 * i][2 + second] = parts[i].y;
      weights[2 * i + 1][second] = parts[i].z;
      weights[2 * i + 1][2 + second] = parts[i].w;
    }
  }
}

// Adds what the adapters add to all sums. Products have four terms of each of four lanes: two of
// high numbers of B with high sums, two with low ones, and two of low numbers.
__forceinline__ void AddLowRank(ARGS_ uint first_result, const Place& place,
                                float (*sums)[kTile / 2]) {
  uint weights[kBlocks][4][4];
  UNROLL for (uint block = 0; block < kBlocks; ++block) {
    LoadB(ARGS first_result, block, weights[block]);
  }
  WaitFor(filled[place.stage], place.parity);
  const uint stage = FirstStage() + place.stage * kStageBytes;
  UNROLL for (uint i = 0; i < kBlocks * 16; ++i) {
    ComputeUntilHere(weights[i / 16][i / 4 % 4][i % 4]);
  }
  BeginProducts();
  UNROLL for (uint block = 0; block < kBlocks; ++block) {
    UNROLL for (uint j = 0; j < 6; ++j) {
      MultiplyBrains<kTile>(sums[block], weights[block][j < 4 ? j % 2 : j - 2],
                            stage + j / 4 * kSliceBytes + j % 4 * 32);
    }
  }
  EndProducts<0>();
}

// The sums of all stages. While products with a run of weights are under way, the next is decoded.
__forceinline__ void SumUp(ARGS_ Rows* rows, uint first_result, uint begin, uint end,
                           float (*sums)[kTile / 2]) {
  uint weights[2][4][4];
  rows[0].Load(ARGS begin);
  Place place, last;
  for (uint step = begin; step < end; ++step) {
    WaitFor(filled[place.stage], place.parity);
    const uint stage = FirstStage() + place.stage * kStageBytes, next = min(step + 1, end - 1);
    UNROLL for (uint block = 0; block < kBlocks; ++block) {
      const uint index = ChunkOf(ARGS step);
      Chunk chunk[2] = {Unpack(rows[block].raw[0], index), Unpack(rows[block].raw[1], index)};
      // With two blocks there are too few registers for this.
      if (kBlocks == 1) rows[block].Load(ARGS next);
      UNROLL for (uint run = 0; run < 2; ++run) {
        Decode(chunk, run, weights[run]);
        if (kBlocks > 1 && run == 1) {
          const bool is_last = block + 1 == kBlocks;
          rows[is_last ? 0 : block + 1].Load(ARGS is_last ? next : step);
        }
        Multiply(sums[block], weights[run], stage + run * kSliceBytes);
        // All products of the step before have ended.
        if (block == 0 && run == 0 && step > begin) {
          if (ME % 32 == 0) Arrive(used[last.stage]);
          last.Next();
        }
      }
    }
    place.Next();
  }
  WaitForProducts<0>();
  if (HasLowRank(push)) AddLowRank(ARGS first_result, place, sums);
}

// ---- results ------------------------------------------------------------------------------------

struct Bounds {
  float low, high;
  bool are_there;
};

__forceinline__ void StoreResults(ARGS_ const float* sums, const Bounds& bounds, uint result) {
  float* results = FLOATS(y) + Offset(WORKGROUP_Z) * ROWS_OF(rows) * push.n;
  UNROLL for (uint i = 0; i < kTile / 4; ++i) {
    const uint row = i / 2 * 8 + ME % 4 * 2 + i % 2;
    const int pair = SHARED(pair)[row];
    const float factor = factors[row];
    float* y = results + Offset(max(pair, 0)) * push.n + result;
    float values[2] = {sums[i / 2 * 4 + i % 2] * factor, sums[i / 2 * 4 + 2 + i % 2] * factor};
    if (kGlu != 0) values[0] = GeluTanh(values[0]) * values[1];
    UNROLL for (uint k = 0; k < (kGlu != 0 ? 1 : 2); ++k) {
      const float value = values[k];
      if (pair < 0 || result + k * kToSecond >= push.n) continue;
      y[k * kToSecond] = bounds.are_there ? Clamped(value, bounds.low, bounds.high) : value;
    }
  }
}

__forceinline__ void MultiplyAll(ARGS_ uint first_weight_row, uint begin, uint end) {
  const uint first_result = WORKGROUP * kResults;
  Rows rows[kBlocks];
  float sums[kBlocks][kTile / 2];
  UNROLL for (uint block = 0; block < kBlocks; ++block) {
    FindWeights(ARGS rows[block], first_result, first_weight_row, block);
    UNROLL for (uint i = 0; i < kTile / 2; ++i) sums[block][i] = 0.0f;
  }
  SumUp(ARGS rows, first_result, begin, end, sums);
  Bounds bounds{0.0f, 0.0f, !IS_NULL(range)};
  if (bounds.are_there) bounds = {FLOATS(range)[0], FLOATS(range)[1], true};
  UNROLL for (uint block = 0; block < kBlocks; ++block) {
    StoreResults(ARGS sums[block], bounds, ResultOf(first_result, block));
  }
}

KERNEL(matmul_warpgroup) {
  uint first_weight_row;
  if (ME == 0) {
    for (uint i = 0; i < kStages; ++i) {
      Make(filled[i], THREADS - kMultipliers);
      Make(used[i], kMultipliers / 32);
    }
  }
  // Has a barrier at its end.
  if (!FindRows(LOCAL ARGS WORKGROUP_Y, REF(first_weight_row))) return;
  constexpr uint kTerms = 128;
  const uint steps = (push.k + kTerms - 1) / kTerms;
  const uint share = (steps + WORKGROUPS_Z - 1) / WORKGROUPS_Z;
  // The plan gives every part a step.
  const uint begin = WORKGROUP_Z * share, end = min(begin + share, steps);
  if (ME >= kMultipliers) {
    GiveRegisters<kOfBringers>();
    BringX(ARGS begin, end);
  } else {
    TakeRegisters<kOfMultipliers>();
    MultiplyAll(ARGS first_weight_row, begin, end);
  }
}

#else

// Lowering asks for this kernel on devices with warpgroups only (Capabilities::warpgroups).
KERNEL(matmul_warpgroup) {}

#endif
