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
// The tiles of x and of weights lie column by column; odd pitches let their banks differ.
#define kPitchX (kTile + 1)
#define kPitchW (kResults + 1)
#define kRowStep (kTile / 4)  // between the rows of a work-item
#define kSums (kHalves * 16)

KERNEL(matmul) {
  __local float shared_x[32 * kPitchX];
  __local float shared_w[kHalves * 32 * kPitchW];
  __local int row_of[kTile];
  __local int pair_of[kTile];
  uint first_weight_row;
  if (!FindRows(get_group_id(1), ROWS_OF(rows), AT(uint, extra), push.used, push.expert_rows,
                row_of, pair_of, &first_weight_row)) {
    return;
  }
  const uint first = GROUP * kResults, begin = PART * SHARE;
  const uint end = min(begin + SHARE, CHUNKS(push.k, push.blocks));
  // This work-item loads 8 consecutive columns of one row of x, and chunks of rows of weights.
  const uint x_row = ME >> 2, part = (ME & 3) * 8;
  const int source = row_of[x_row];
  __global const float* from = AT(float, x) + (size_t)max(source, 0) * push.k;
  const uint tx = ME & 15, ty = ME >> 4;
  float sums[kSums];
  UNROLL for (uint i = 0; i < kSums; ++i) sums[i] = 0.0f;
  for (uint chunk = begin; chunk < end; ++chunk) {
    const uint2 at = ChunkAt(chunk);
    const uint column = (part < 16 ? at.x : at.y) + (part & 15);
    BARRIER();
    UNROLL for (uint i = 0; i < 8; ++i) {
      const bool there = source >= 0 && IN_X(column + i);
      shared_x[(part + i) * kPitchX + x_row] = there ? from[column + i] : 0.0f;
    }
    FOR_MINE(own, kHalves * kResults) {
      const uint half_glu = own / kResults, result = own % kResults;
      const uint weight_row = first_weight_row + min(first + result, push.n - 1);
      const WeightRow weights =
          half_glu == 0 ? WEIGHT_ROW(weight, weight_row) : WEIGHT_ROW(weight2, weight_row);
      const Chunk c = Decode(weights, chunk);
      UNROLL for (uint run = 0; run < 2; ++run) {
        const Sixteen values = ValuesOf(&c, run);
        UNROLL for (uint i = 0; i < 16; ++i) {
          shared_w[(half_glu * 32 + run * 16 + i) * kPitchW + result] = values.one[i];
        }
      }
    }
    BARRIER();
    // Sums of sums of 32 terms round less than sums of all.
    float sum[kSums];
    UNROLL for (uint i = 0; i < kSums; ++i) sum[i] = 0.0f;
    for (uint i = 0; i < 32; ++i) {
      float x[4];
      UNROLL for (uint a = 0; a < 4; ++a) x[a] = shared_x[i * kPitchX + ty + kRowStep * a];
      UNROLL for (uint b = 0; b < 4 * kHalves; ++b) {
        const float w = shared_w[((b >> 2) * 32 + i) * kPitchW + tx + 16 * (b & 3)];
        UNROLL for (uint a = 0; a < 4; ++a) sum[b * 4 + a] = fma(x[a], w, sum[b * 4 + a]);
      }
    }
    UNROLL for (uint i = 0; i < kSums; ++i) sums[i] += sum[i];
  }
  UNROLL for (uint a = 0; a < 4; ++a) {
    const int pair = pair_of[ty + kRowStep * a];
    UNROLL for (uint b = 0; b < 4; ++b) {
      const uint column = first + tx + 16 * b;
      if (pair < 0 || column >= push.n) continue;
      float y = sums[b * 4 + a];
#if kGlu
      y = GeluTanh(y) * sums[(4 + b) * 4 + a];
#endif
      RESULTS[(size_t)pair * push.n + column] = y;
    }
  }
}
#endif
