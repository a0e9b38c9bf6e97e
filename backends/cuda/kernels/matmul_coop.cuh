// Products of many rows with a matrix of weights on tensor cores: x in f16 (to_half), weights
// decoded to f16, sums in f32. Where x has two parts, both are multiplied. A workgroup computes a
// tile of rows and results in steps of 64 terms, or of 32 with two parts, which it brings into
// shared memory; each warp has a part of the tile. Meanwhile x of the next step is copied to the
// other half of that memory, weights of the next step are decoded there, and those of the step
// after it are on their way. k is a multiple of the terms of a step. Workgroups in z sum a part of
// the terms each; sum_parts adds their sums.
#include "math.kernel"
#include "matrices.cuh"
#include "product.kernel"
#include "tile_rows.kernel"

#define kTerms (64 / kParts)              // of a step
#define kChunks (kTerms / 32)             // of weights, in a row of a step
#define kVectors (kTerms / 8)             // of 8 terms, likewise
#define kPitch (kVectors + 1)             // of a row of the tile, in vectors
#define kWords (kPitch * 4)               // the same in words
#define kResults (kColumns / (kGlu + 1))  // of the tile
#define kRowsOfX (kTile * kParts)         // all rows of the first part, then of the second
// The matrices of an instruction: 16 rows of x, 8 columns, 16 terms.
#define kRowMatrices (kSubgroupRows / 16)
#define kColumnMatrices (kSubgroupColumns / 8)
#define kOwnVectors (kRowsOfX * kVectors / THREADS)
// Weights in f16 are loaded in vectors, as x is.
#define kHalfWeights (kType == kF16)
#define kPieces (kHalfWeights ? kVectors : kChunks)  // of weights, in a row of a step
// A step of 32 terms of weights in blocks has fewer chunks than there are threads.
#define kTileChunks (kColumns * kPieces)
#define kMostChunks (kColumns * (kMayBeHalf ? kVectors : kChunks))
#define kOwnChunks ((kTileChunks + THREADS - 1) / THREADS)
#define kMostOwnChunks ((kMostChunks + THREADS - 1) / THREADS)
#define kSomeHaveNone (kTileChunks % THREADS != 0)
#define OWN(i) (ME + (i)*THREADS)
#define kStepVectors ((kRowsOfX + kColumns) * kPitch)  // of a step, in shared memory
// Forms for any type are of blocks.
#ifdef OPEN
#define kMayBeHalf false
#undef kHalfWeights
#define kHalfWeights false
#else
#define kMayBeHalf kHalfWeights
#endif

// Two steps, as CoopBytes() of forms.cc has it.
extern __shared__ uint4 tiles[];
__forceinline__ uint4* TileOf(uint step) { return tiles + step % 2 * kStepVectors; }
static_assert(SHARED_BYTES == 2 * kStepVectors * sizeof(uint4), "a launch gives other memory");

// A piece of a row of weights on its way.
union Piece {
  uint4 vector;
  RawChunk chunk;
};

// The column of the tile where matrix `i` of a warp's part begins: of a gated product, half of them
// are the gate's and the others those of the other matrix for the same results.
__forceinline__ uint ColumnOf(uint first_column, uint i) {
  if (kGlu == 0) return first_column + i * 8;
  return i / (kColumnMatrices / 2) * kResults + first_column / 2 + i % (kColumnMatrices / 2) * 8;
}

// Adds the products of a step to a warp's sums, by MultiplyMatrices or MultiplyBrains.
template <void (*MultiplyAdd)(float*, const uint*, const uint*)>
__forceinline__ void Multiply(const uint* tile, uint first_row, uint first_column,
                              float (*sums)[kRowMatrices][4]) {
  const uint lane = ME % 32;
  // Lanes 0 to 15 point to rows, and lanes 16 to 31 to the same rows 8 terms later.
  const uint row_of_a = lane % 16, word_of_a = lane / 16 * 4;
  // Of two matrices of columns: lanes 0 to 7 and 8 to 15 have the first one's halves of the terms.
  const uint row_of_b = lane % 8, word_of_b = lane / 8 % 2 * 4, matrix_of_b = lane / 16;
  UNROLL for (uint k = 0; k < kTerms / 16; ++k) {
    uint a[kRowMatrices * kParts][4];
    UNROLL for (uint m = 0; m < kRowMatrices * kParts; ++m) {
      const uint first = m / kRowMatrices * kTile + first_row + m % kRowMatrices * 16;
      LoadMatrices(a[m], tile + (first + row_of_a) * kWords + k * 8 + word_of_a);
    }
    UNROLL for (uint n = 0; n < kColumnMatrices; n += 2) {
      const uint column = ColumnOf(first_column, n + matrix_of_b) + row_of_b;
      uint b[4];
      LoadMatrices(b, tile + (kRowsOfX + column) * kWords + k * 8 + word_of_b);
      UNROLL for (uint m = 0; m < kRowMatrices * kParts; ++m) {
        MultiplyAdd(sums[n][m % kRowMatrices], a[m], b);
        MultiplyAdd(sums[n + 1][m % kRowMatrices], a[m], b + 2);
      }
    }
  }
}

// Decodes a chunk of weights to f16.
__forceinline__ void StoreChunk(const RawChunk& raw, uint chunk, uint4* to) {
  const Chunk c = Unpack(raw, chunk);
  UNROLL for (uint j = 0; j < 4; ++j) {
    const float4 a = ValuesAt(c, j * 2), b = ValuesAt(c, j * 2 + 1);
    to[j] = make_uint4(HalfPair(make_float2(a.x, a.y)), HalfPair(make_float2(a.z, a.w)),
                       HalfPair(make_float2(b.x, b.y)), HalfPair(make_float2(b.z, b.w)));
  }
}

// What a thread brings into shared memory: vectors of some rows of x, pieces of some rows of
// weights.
struct Own {
  Memory x_row[kOwnVectors];  // null where the step has no such row
  WeightRow weight_row[kMostOwnChunks];
  Piece weight_piece[kMostOwnChunks];
};

__forceinline__ void FindOwnRows(OWNED_ ARGS_ uint first_result, uint first_weight_row) {
  UNROLL for (uint i = 0; i < kOwnVectors; ++i) {
    const uint tile_row = OWN(i) / kVectors;
    const int row = SHARED(row)[tile_row % kTile];
    const Offset stored = Offset(max(row, 0)) * kParts + tile_row / kTile;
    MINE(x_row)[i] = row < 0 ? nullptr : push.x + stored * push.k * 2;
  }
  UNROLL for (uint i = 0; i < kOwnChunks; ++i) {
    const uint column = min(OWN(i) / kPieces, uint(kColumns - 1));
    const uint row = first_weight_row + min(first_result + column % kResults, push.n - 1);
    MINE(weight_row)[i] = RowOfWeights(ARGS column / kResults, row);
  }
}

__forceinline__ void CopyX(Own& own_variables, uint step) {
  // Terms of x in the order of the weights' chunks: four vectors for each of those.
  const uint part = ME % kVectors;
  const uint2 at = ChunkAt(step * kChunks + part / 4);
  const uint term = ((part & 2) == 0 ? at.x : at.y) + (part & 1) * 8;
  uint4* to = TileOf(step) + part;
  UNROLL for (uint i = 0; i < kOwnVectors; ++i) {
    // Nobody looks at the results of rows that are not there. Copies of another row in their places
    // would all read the same lines of the L2 cache.
    if (MINE(x_row)[i] == nullptr) continue;
    CopyLater(to + OWN(i) / kVectors * kPitch, MINE(x_row)[i] + term * 2);
  }
}

__forceinline__ void LoadWeights(OWNED_ ARGS_ uint step) {
  UNROLL for (uint i = 0; i < kOwnChunks; ++i) {
    const uint piece = step * kPieces + OWN(i) % kPieces;
    if (kHalfWeights) {
      // Rows in f16 are whole chunks of 32 terms, and end within a step of 64.
      const bool is_there = piece < push.stride / 16;
      MINE(weight_piece)
      [i].vector = is_there ? LOAD_VECTOR(MINE(weight_row)[i], piece) : make_uint4(0, 0, 0, 0);
    } else {
      MINE(weight_piece)[i].chunk = Load(MINE(weight_row)[i], piece);
    }
  }
}

__forceinline__ void StoreWeights(Own& own_variables, uint step) {
  UNROLL for (uint i = 0; i < kOwnChunks; ++i) {
    if (kSomeHaveNone && OWN(i) >= kTileChunks) continue;
    const uint piece = OWN(i) % kPieces;
    uint4* weights = TileOf(step) + (kRowsOfX + OWN(i) / kPieces) * kPitch;
    if (kHalfWeights) {
      weights[piece] = MINE(weight_piece)[i].vector;
    } else {
      StoreChunk(MINE(weight_piece)[i].chunk, step * kPieces + piece, weights + piece * 4);
    }
  }
}

#include "low_rank.cuh"

// Adds what the adapters add to a warp's sums, two chunks of terms at a time.
__forceinline__ void AddLowRank(ARGS_ uint first_result, uint first_row, uint first_column,
                                float (*sums)[kRowMatrices][4]) {
  const LowRank& adapter = *(const LowRank*)push.extra;
  uint4* tile = TileOf(0);
  for (uint first = 0; first < LowRankChunks(adapter); first += 2) {
    BARRIER();
    for (uint i = ME; i < 2 * (kTile + kColumns); i += THREADS) {
      const uint row = i / 2, column = row - kTile, chunk = first + i % 2;
      const bool is_sum = row < kTile;
      const EightTerms terms = is_sum ? TermsOfSums(ARGS adapter, chunk, SHARED(row)[row])
                                      : TermsOfB(ARGS adapter, chunk, column / kResults,
                                                 first_result + column % kResults);
      const uint4 high = HighOf(terms), low = LowOf(terms);
      uint4* to = tile + row * kPitch + i % 2 * 4;
      to[0] = high;
      to[1] = is_sum ? low : high;
      to[2] = is_sum ? high : low;
      to[3] = make_uint4(0, 0, 0, 0);
    }
    BARRIER();
    Multiply<MultiplyBrains>((const uint*)tile, first_row, first_column, sums);
  }
}

// One of them decodes while the other one multiplies.
#undef LEAST_BLOCKS
#define LEAST_BLOCKS 2
KERNEL(matmul_coop) {
  uint first_weight_row;
  if (!FindRows(LOCAL ARGS WORKGROUP_Y, REF(first_weight_row))) return;
  const uint first_result = WORKGROUP * kResults;
  const uint warp = ME / 32, warps_of_rows = kTile / kSubgroupRows;
  const uint first_row = warp % warps_of_rows * kSubgroupRows;
  const uint first_column = warp / warps_of_rows * kSubgroupColumns;
  float sums[kColumnMatrices][kRowMatrices][4];
  UNROLL for (uint n = 0; n < kColumnMatrices; ++n) {
    UNROLL for (uint m = 0; m < kRowMatrices; ++m) {
      UNROLL for (uint i = 0; i < 4; ++i) sums[n][m][i] = 0.0f;
    }
  }

  NEW_OWN;
  FindOwnRows(OWNED ARGS first_result, first_weight_row);
  const uint steps = push.k / kTerms, share = (steps + WORKGROUPS_Z - 1) / WORKGROUPS_Z;
  const uint begin = min(WORKGROUP_Z * share, steps), end = min(begin + share, steps);
  if (begin < end) {
    CopyX(own_variables, begin);
    LoadWeights(OWNED ARGS begin);
    StoreWeights(own_variables, begin);
    if (begin + 1 < end) LoadWeights(OWNED ARGS begin + 1);
    WaitForCopies();
  }
  for (uint step = begin; step < end; ++step) {
    BARRIER();  // the other half of the memory is used, and this one is filled
    if (step + 1 < end) {
      CopyX(own_variables, step + 1);
      StoreWeights(own_variables, step + 1);
      if (step + 2 < end) LoadWeights(OWNED ARGS step + 2);
    }
    Multiply<MultiplyMatrices>((const uint*)TileOf(step), first_row, first_column, sums);
    WaitForCopies();
  }

  // Workgroups in z share the terms of x, and the first of them has those of the adapters.
  if (kAdapted != 0 && WORKGROUP_Z == 0) {
    AddLowRank(ARGS first_result, first_row, first_column, sums);
  }
  float* results = FLOATS(y) + Offset(WORKGROUP_Z) * ROWS_OF(rows) * push.n;
  const uint lane = ME % 32;
  const bool bounded = !IS_NULL(range);
  const float low = bounded ? FLOATS(range)[0] : 0.0f;
  const float high = bounded ? FLOATS(range)[1] : 0.0f;
  UNROLL for (uint m = 0; m < kRowMatrices; ++m) {
    UNROLL for (uint half_matrix = 0; half_matrix < 2; ++half_matrix) {
      const uint row = first_row + m * 16 + half_matrix * 8 + lane / 4;
      const int pair = SHARED(pair)[row];
      if (pair < 0) continue;
      const float factor = FLOATS(factor)[SHARED(row)[row]];
      float* y = results + Offset(pair) * push.n;
      UNROLL for (uint n = 0; n < kColumnMatrices / (kGlu + 1); ++n) {
        UNROLL for (uint i = 0; i < 2; ++i) {
          const uint result = first_result + ColumnOf(first_column, n) + lane % 4 * 2 + i;
          if (result >= push.n) continue;
          float value = sums[n][m][half_matrix * 2 + i] * factor;
          if (kGlu != 0) {
            value = GeluTanh(value) *
                    (sums[kGlu * kColumnMatrices / 2 + n][m][half_matrix * 2 + i] * factor);
          }
          if (bounded) value = Clamped(value, low, high);
          y[result] = value;
        }
      }
    }
  }
}
