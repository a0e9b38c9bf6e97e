// Products of many rows with a matrix of weights on NVIDIA's tensor cores: x in f16 (to_half),
// weights decoded to f16, sums in f32. Where x has two parts, both are multiplied. A work-group
// computes a tile of rows and results in steps of 64 terms, or of 32 with two parts, which it
// brings into local memory; each warp has a part of the tile. What the next step needs is on its
// way from memory meanwhile. k is a multiple of the terms of a step. Work-groups in the third
// dimension sum a part of the terms each; sum_parts.kernel adds their sums.
#include "common.cl"
#include "matmul_coop.args"
#include "math.kernel"
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
#if kHalfWeights
#define kPieces kVectors  // of weights, in a row of a step
#else
#define kPieces kChunks
#endif
// A step of 32 terms of weights in blocks has fewer chunks than there are work-items.
#define kTileChunks (kColumns * kPieces)
#define kOwnChunks ((kTileChunks + THREADS - 1) / THREADS)
#define kSomeHaveNone (kTileChunks % THREADS != 0)
#define OWN(i) (ME + (i)*THREADS)

// sums += a b: each lane has two rows and two columns of the sums, 8 rows apart.
INLINED void MultiplyMatrices(float* sums, const uint* a, const uint* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The column of the tile where matrix `i` of a warp's part begins: of a gated product, half of them
// are the gate's and the others those of the other matrix for the same results.
uint ColumnOf(uint first_column, uint i) {
#if kGlu
  return i / (kColumnMatrices / 2) * kResults + first_column / 2 + i % (kColumnMatrices / 2) * 8;
#else
  return first_column + i * 8;
#endif
}

// Adds the products of a step to a warp's sums.
INLINED void Multiply(__local const uint* tile, uint first_row, uint first_column,
                      float (*sums)[kRowMatrices][4]) {
  const uint lane = ME % 32, row = lane / 4, word = lane % 4;
  UNROLL for (uint k = 0; k < kTerms / 16; ++k) {
    uint a[kRowMatrices * kParts][4];
    UNROLL for (uint m = 0; m < kRowMatrices * kParts; ++m) {
      const uint first = m / kRowMatrices * kTile + first_row + m % kRowMatrices * 16;
      __local const uint* from = tile + (first + row) * kWords + k * 8 + word;
      a[m][0] = from[0];
      a[m][1] = from[8 * kWords];
      a[m][2] = from[4];
      a[m][3] = from[8 * kWords + 4];
    }
    UNROLL for (uint n = 0; n < kColumnMatrices; ++n) {
      __local const uint* from =
          tile + (kRowsOfX + ColumnOf(first_column, n) + row) * kWords + k * 8 + word;
      const uint b[2] = {from[0], from[4]};
      UNROLL for (uint m = 0; m < kRowMatrices * kParts; ++m) {
        MultiplyMatrices(sums[n][m % kRowMatrices], a[m], b);
      }
    }
  }
}

KERNEL(matmul_coop) {
  uint first_weight_row;
  if (!FindRows(LOCAL ARGS WORKGROUP_Y, &first_weight_row)) return;
  const uint first_result = GROUP * kResults;
  const uint warp = ME / 32, warps_of_rows = kTile / kSubgroupRows;
  const uint first_row = warp % warps_of_rows * kSubgroupRows;
  const uint first_column = warp / warps_of_rows * kSubgroupColumns;
  float sums[kColumnMatrices][kRowMatrices][4];
  UNROLL for (uint n = 0; n < kColumnMatrices; ++n) {
    UNROLL for (uint m = 0; m < kRowMatrices; ++m) {
      UNROLL for (uint i = 0; i < 4; ++i) sums[n][m][i] = 0.0f;
    }
  }

  // This work-item loads: vectors of some rows of x, chunks of some rows of weights.
  __global const uchar* x_row[kOwnVectors];
  uint4 x_vector[kOwnVectors];
  WeightRow weight_row[kOwnChunks];
#if kHalfWeights
  uint4 weight_vector[kOwnChunks];
#else
  RawChunk weight_chunk[kOwnChunks];
#endif
  UNROLL for (uint i = 0; i < kOwnVectors; ++i) {
    // Rows that are not there get another's: nobody looks at their results.
    const uint tile_row = OWN(i) / kVectors;
    const size_t row = (size_t)max(SHARED(row)[tile_row % kTile], 0) * kParts + tile_row / kTile;
    x_row[i] = AT(const uchar, x) + row * push.k * 2;
  }
  UNROLL for (uint i = 0; i < kOwnChunks; ++i) {
    const uint column = min(OWN(i) / kPieces, (uint)(kColumns - 1));
    const uint row = first_weight_row + min(first_result + column % kResults, push.n - 1);
    weight_row[i] = RowOfWeights(ARGS column / kResults, row);
  }

  const uint part = ME % kVectors, steps = push.k / kTerms;
  const uint share = (steps + (uint)get_num_groups(2) - 1) / (uint)get_num_groups(2);
  const uint begin = min((uint)get_group_id(2) * share, steps), end = min(begin + share, steps);
  for (uint next = begin; next <= end; ++next) {
    if (next > begin) {
      BARRIER();
      UNROLL for (uint i = 0; i < kOwnVectors; ++i) {
        SHARED(tile)[OWN(i) / kVectors * kPitch + part] = x_vector[i];
      }
      UNROLL for (uint i = 0; i < kOwnChunks; ++i) {
        if (kSomeHaveNone && OWN(i) >= kTileChunks) continue;
        const uint piece = OWN(i) % kPieces;
        __local uint4* weights = SHARED(tile) + (kRowsOfX + OWN(i) / kPieces) * kPitch;
#if kHalfWeights
        weights[piece] = weight_vector[i];
#else
        const Chunk c = Unpack(weight_chunk[i], (next - 1) * kPieces + piece);
        __local uint4* to = weights + piece * 4;
        UNROLL for (uint j = 0; j < 4; ++j) {
          const float4 a = ValuesAt(c, j * 2), b = ValuesAt(c, j * 2 + 1);
          to[j] = (uint4)(HalfPair(a.xy), HalfPair(a.zw), HalfPair(b.xy), HalfPair(b.zw));
        }
#endif
      }
      BARRIER();
    }
    if (next < end) {
      // Terms of x in the order of the weights' chunks: four vectors for each of those.
      const uint2 at = ChunkAt(next * kChunks + part / 4);
      const uint term = ((part & 2) == 0 ? at.x : at.y) + (part & 1) * 8;
      UNROLL for (uint i = 0; i < kOwnVectors; ++i) {
        x_vector[i] = *(__global const uint4*)(x_row[i] + term * 2);
      }
      UNROLL for (uint i = 0; i < kOwnChunks; ++i) {
        const uint piece = next * kPieces + OWN(i) % kPieces;
#if kHalfWeights
        // Rows in f16 are whole chunks of 32 terms, and end within a step of 64.
        const bool is_there = piece < push.stride / 16;
        weight_vector[i] = is_there ? LOAD_VECTOR(weight_row[i], piece) : (uint4)(0);
#else
        weight_chunk[i] = Load(weight_row[i], piece);
#endif
      }
    }
    if (next > begin) Multiply((__local const uint*)SHARED(tile), first_row, first_column, sums);
  }

  __global float* results = AT(float, y) + (size_t)get_group_id(2) * ROWS_OF(rows) * push.n;
  const uint lane = ME % 32;
  const bool bounded = !IS_NULL(range);
  const float low = bounded ? AT(float, range)[0] : 0.0f;
  const float high = bounded ? AT(float, range)[1] : 0.0f;
  UNROLL for (uint m = 0; m < kRowMatrices; ++m) {
    UNROLL for (uint half_matrix = 0; half_matrix < 2; ++half_matrix) {
      const uint row = first_row + m * 16 + half_matrix * 8 + lane / 4;
      const int pair = SHARED(pair)[row];
      if (pair < 0) continue;
      const float factor = AT(float, factor)[SHARED(row)[row]];
      __global float* y = results + (size_t)pair * push.n;
      UNROLL for (uint n = 0; n < kColumnMatrices / (kGlu + 1); ++n) {
        UNROLL for (uint i = 0; i < 2; ++i) {
          const uint result = first_result + ColumnOf(first_column, n) + lane % 4 * 2 + i;
          if (result >= push.n) continue;
          float value = sums[n][m][half_matrix * 2 + i] * factor;
#if kGlu
          value =
              GeluTanh(value) * (sums[n + kColumnMatrices / 2][m][half_matrix * 2 + i] * factor);
#endif
          if (bounded) value = Clamped(value, low, high);
          y[result] = value;
        }
      }
    }
  }
}
