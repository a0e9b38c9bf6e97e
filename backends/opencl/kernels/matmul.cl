// Products of many rows with a matrix of weights, in tiles of kTile rows and 64 results. A tile is
// computed by 4 * kTile work-items with 4 x 4 results each, which share its rows in local memory,
// or by one work-item of a CPU with vectors of 16 results. Accumulates in f32. Work-groups of
// dimension 2 take parts of the terms, which sum_parts.cl adds.
#include "common.cl"
#include "matmul.args"
#include "math.kernel"
#include "weights.cl"
#include "product.cl"
#include "tile_rows.cl"

#if kChecked
#define IN_X(column) ((column) < push.k)
#else
#define IN_X(column) true
#endif
#define kHalves (kGlu + 1)
#define kResults 64

// This work-group's part: chunks, and where its results go.
#define PARTS ((uint)get_num_groups(2))
#define PART ((uint)get_group_id(2))
#define SHARE ((CHUNKS(push.k, push.blocks) + PARTS - 1) / PARTS)
#define RESULTS (AT(float, y) + (size_t)PART * ROWS_OF(rows) * push.n)

#ifdef CPU
#define kVectors (kResults / 16)  // of 16 results
#define kRowsAtOnce 4             // of x, whose sums are in registers

// Adds the products of `rows` rows of x with a chunk of weights, in order of the terms, to their
// sums. Sums of sums of 32 terms round less than sums of all.
void AddChunk(const float* x, const float16* w, float16* sums) {
  for (uint row = 0; row < kTile; row += kRowsAtOnce) {
    for (uint half_glu = 0; half_glu < kHalves; ++half_glu) {
      float16 sum[kRowsAtOnce][kVectors];
      for (uint r = 0; r < kRowsAtOnce; ++r) {
        for (uint v = 0; v < kVectors; ++v) sum[r][v] = 0.0f;
      }
      for (uint i = 0; i < 32; ++i) {
        for (uint v = 0; v < kVectors; ++v) {
          const float16 weight = w[(half_glu * 32 + i) * kVectors + v];
          for (uint r = 0; r < kRowsAtOnce; ++r) {
            sum[r][v] = fma((float16)x[(row + r) * 32 + i], weight, sum[r][v]);
          }
        }
      }
      for (uint r = 0; r < kRowsAtOnce; ++r) {
        for (uint v = 0; v < kVectors; ++v) {
          sums[((row + r) * kHalves + half_glu) * kVectors + v] += sum[r][v];
        }
      }
    }
  }
}

KERNEL(matmul) {
  __local int row_of[kTile];
  __local int pair_of[kTile];
  float16 sums[kTile * kHalves * kVectors];
  float16 w[kHalves * 32 * kVectors];
  float x[kTile * 32];
  uint first_weight_row;
  if (!FindRows(get_group_id(1), ROWS_OF(rows), AT(uint, extra), push.used, push.expert_rows,
                row_of, pair_of, &first_weight_row)) {
    return;
  }
  const uint first = GROUP * kResults, begin = PART * SHARE;
  const uint end = min(begin + SHARE, CHUNKS(push.k, push.blocks));
  for (uint i = 0; i < kTile * kHalves * kVectors; ++i) sums[i] = 0.0f;
  for (uint chunk = begin; chunk < end; ++chunk) {
    const uint2 at = ChunkAt(chunk);
    for (uint row = 0; row < kTile; ++row) {
      __global const float* from = AT(float, x) + (size_t)max(row_of[row], 0) * push.k;
      for (uint i = 0; i < 32; ++i) {
        const uint column = RUN_AT(at, i >> 4) + (i & 15);
        const bool there = row_of[row] >= 0 && IN_X(column);
        x[row * 32 + i] = there ? from[column] : 0.0f;
      }
    }
    for (uint half_glu = 0; half_glu < kHalves; ++half_glu) {
      float* to = (float*)(w + half_glu * 32 * kVectors);
      for (uint result = 0; result < kResults; ++result) {
        const uint row = first_weight_row + min(first + result, push.n - 1);
        const WeightRow weights =
            half_glu == 0 ? WEIGHT_ROW(weight, row) : WEIGHT_ROW(weight2, row);
        const Chunk c = Decode(weights, chunk);
        for (uint run = 0; run < 2; ++run) {
          const Sixteen values = ValuesOf(&c, run);
          for (uint i = 0; i < 16; ++i) to[(run * 16 + i) * kResults + result] = values.one[i];
        }
      }
    }
    AddChunk(x, w, sums);
  }
  for (uint row = 0; row < kTile; ++row) {
    if (pair_of[row] < 0) continue;
    const float* sum = (const float*)(sums + row * kHalves * kVectors);
    __global float* y = RESULTS + (size_t)pair_of[row] * push.n + first;
    for (uint result = 0; result < kResults && first + result < push.n; ++result) {
      y[result] = kGlu ? GeluTanh(sum[result]) * sum[kResults + result] : sum[result];
    }
  }
}

#else
#define kSide 4  // a work-item computes 4 x 4 results
// Tiles of x and of the weights, term by term, with four rows or results in a vector. Odd pitches
// let the banks of terms differ.
#define kPitchX (kTile / kSide + 1)
#define kPitchW (kResults / kSide + 1)
// Where an element of a tile is, as a float.
#define PLACE(pitch, term, index) ((term) * (pitch)*kSide + (index))

// Four values of x from `column` on, 0 beyond the end of its row.
INLINED float4 LoadFour(__global const float* row, uint column, uint k) {
#if kChecked
  return (float4)(column < k ? row[column] : 0.0f, column + 1 < k ? row[column + 1] : 0.0f,
                  column + 2 < k ? row[column + 2] : 0.0f, column + 3 < k ? row[column + 3] : 0.0f);
#else
  return *(__global const float4*)(row + column);
#endif
}

// Adds the products of a term of four rows with four results; a vector of `sums` for each row.
INLINED void AddTerm(float4* sums, float4 x, float4 w) {
  sums[0] = fma((float4)x.x, w, sums[0]);
  sums[1] = fma((float4)x.y, w, sums[1]);
  sums[2] = fma((float4)x.z, w, sums[2]);
  sums[3] = fma((float4)x.w, w, sums[3]);
}

KERNEL(matmul) {
  __local float4 shared_x[32 * kPitchX];
  __local float4 shared_w[kHalves * 32 * kPitchW];
  __local int row_of[kTile];
  __local int pair_of[kTile];
  uint first_weight_row;
  if (!FindRows(get_group_id(1), ROWS_OF(rows), AT(uint, extra), push.used, push.expert_rows,
                row_of, pair_of, &first_weight_row)) {
    return;
  }
  const uint first = GROUP * kResults, begin = PART * SHARE;
  const uint end = min(begin + SHARE, CHUNKS(push.k, push.blocks));
  // This work-item loads four columns of each half of a row of x, and chunks of rows of weights.
  const uint x_row = ME >> 2, x_column = (ME & 3) * 4;
  const int source = row_of[x_row];
  __global const float* from = AT(float, x) + (size_t)max(source, 0) * push.k;
  const uint tx = ME & 15, ty = ME >> 4;
  float4 sums[kHalves * kSide];
  UNROLL for (uint i = 0; i < kHalves * kSide; ++i) sums[i] = 0.0f;
  for (uint chunk = begin; chunk < end; ++chunk) {
    const uint2 at = ChunkAt(chunk);
    BARRIER();
    UNROLL for (uint run = 0; run < 2; ++run) {
      __local float* to = (__local float*)shared_x;
      const uint term = run * 16 + x_column;
      const float4 values =
          source >= 0 ? LoadFour(from, RUN_AT(at, run) + x_column, push.k) : (float4)0.0f;
      to[PLACE(kPitchX, term, x_row)] = values.x;
      to[PLACE(kPitchX, term + 1, x_row)] = values.y;
      to[PLACE(kPitchX, term + 2, x_row)] = values.z;
      to[PLACE(kPitchX, term + 3, x_row)] = values.w;
    }
    FOR_MINE(own, kHalves * kResults) {
      __local float* to = (__local float*)shared_w;
      const uint half_glu = own / kResults, result = own % kResults;
      const uint weight_row = first_weight_row + min(first + result, push.n - 1);
      const WeightRow weights =
          half_glu == 0 ? WEIGHT_ROW(weight, weight_row) : WEIGHT_ROW(weight2, weight_row);
      const Chunk c = Decode(weights, chunk);
      UNROLL for (uint run = 0; run < 2; ++run) {
        const Sixteen values = ValuesOf(&c, run);
        UNROLL for (uint i = 0; i < 16; ++i) {
          to[PLACE(kPitchW, half_glu * 32 + run * 16 + i, result)] = values.one[i];
        }
      }
    }
    BARRIER();
    // Sums of sums of 32 terms round less than sums of all.
    float4 sum[kHalves * kSide];
    UNROLL for (uint i = 0; i < kHalves * kSide; ++i) sum[i] = 0.0f;
    for (uint i = 0; i < 32; ++i) {
      const float4 x = shared_x[i * kPitchX + ty];
      UNROLL for (uint half_glu = 0; half_glu < kHalves; ++half_glu) {
        AddTerm(sum + half_glu * kSide, x, shared_w[(half_glu * 32 + i) * kPitchW + tx]);
      }
    }
    UNROLL for (uint i = 0; i < kHalves * kSide; ++i) sums[i] += sum[i];
  }
  UNROLL for (uint a = 0; a < kSide; ++a) {
    const int pair = pair_of[ty * kSide + a];
    float4 y = sums[a];
#if kGlu
    y = (float4)(GeluTanh(y.x), GeluTanh(y.y), GeluTanh(y.z), GeluTanh(y.w)) * sums[kSide + a];
#endif
    const float results[kSide] = {y.x, y.y, y.z, y.w};
    UNROLL for (uint b = 0; b < kSide; ++b) {
      const uint column = first + tx * kSide + b;
      if (pair < 0 || column >= push.n) continue;
      RESULTS[(size_t)pair * push.n + column] = results[b];
    }
  }
}
#endif
