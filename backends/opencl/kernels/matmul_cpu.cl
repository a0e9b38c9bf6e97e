// Products of many rows with a matrix of weights on a CPU, in tiles of kTile rows and 64 results,
// which a work-item computes with vectors of 16 results. Accumulates in f32. Work-groups of
// dimension 2 take parts of the terms, which sum_parts adds.

#if kChecked
#define IN_X(column) ((column) < push.k)
#else
#define IN_X(column) true
#endif
#define kHalves (kGlu + 1)
#define kResults 64

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
  float16 sums[kTile * kHalves * kVectors];
  float16 w[kHalves * 32 * kVectors];
  float x[kTile * 32];
  uint first_weight_row;
  if (!FindRows(LOCAL ARGS WORKGROUP_Y, &first_weight_row)) return;
  const uint chunks = CHUNKS(push.k, push.blocks);
  const uint share = (chunks + WORKGROUPS_Z - 1) / WORKGROUPS_Z;
  const uint first = GROUP * kResults, begin = WORKGROUP_Z * share;
  const uint end = min(begin + share, chunks);
  for (uint i = 0; i < kTile * kHalves * kVectors; ++i) sums[i] = 0.0f;
  for (uint chunk = begin; chunk < end; ++chunk) {
    const uint2 at = ChunkAt(chunk);
    for (uint row = 0; row < kTile; ++row) {
      __global const float* from = AT(float, x) + (size_t)max(SHARED(row)[row], 0) * push.k;
      for (uint i = 0; i < 32; ++i) {
        const uint column = RUN_AT(at, i >> 4) + (i & 15);
        const bool there = SHARED(row)[row] >= 0 && IN_X(column);
        x[row * 32 + i] = there ? from[column] : 0.0f;
      }
    }
    for (uint half_glu = 0; half_glu < kHalves; ++half_glu) {
      float* to = (float*)(w + half_glu * 32 * kVectors);
      for (uint result = 0; result < kResults; ++result) {
        const uint row = first_weight_row + min(first + result, push.n - 1);
        const Chunk c = Decode(RowOfWeights(ARGS half_glu, row), chunk);
        for (uint run = 0; run < 2; ++run) {
          const Sixteen values = ValuesOf(c, run);
          for (uint i = 0; i < 16; ++i) to[(run * 16 + i) * kResults + result] = values.one[i];
        }
      }
    }
    AddChunk(x, w, sums);
  }
  for (uint row = 0; row < kTile; ++row) {
    if (SHARED(pair)[row] < 0) continue;
    const float* sum = (const float*)(sums + row * kHalves * kVectors);
    __global float* y = AT(float, y) + (size_t)WORKGROUP_Z * ROWS_OF(rows) * push.n +
                        (size_t)SHARED(pair)[row] * push.n + first;
    for (uint result = 0; result < kResults && first + result < push.n; ++result) {
      y[result] = kGlu ? GeluTanh(sum[result]) * sum[kResults + result] : sum[result];
    }
  }
}
