// Products of few rows with a matrix of weights on a CPU: a work-item takes a block of rows, 16
// terms at a time. Accumulates in f32.

// The values of run `at`, 0 beyond the end.
float16 LoadX(__global const float* x, uint at, uint k) {
  if (!kChecked || at + 16 <= k) return vload16(0, x + at);
  Sixteen v;
  for (uint i = 0; i < 16; ++i) v.one[i] = at + i < k ? x[at + i] : 0.0f;
  return v.vector;
}

float SumOf(float16 x) {
  const float8 eight = x.lo + x.hi;
  const float4 four = eight.lo + eight.hi;
  return (four.x + four.y) + (four.z + four.w);
}

// Adds the products of a chunk of weights with kNt rows of x, of which the last ones may be the
// same.
INLINED void AddChunk(ARGS_ const Chunk c, uint chunk, __global const float* x, uint last_x,
                      float16 (*acc)[2]) {
  const uint2 at = ChunkAt(chunk);
  UNROLL for (uint run = 0; run < 2; ++run) {
    const float16 values = ValuesOf(c, run).vector;
    UNROLL for (uint t = 0; t < kNt; ++t) {
      acc[t][run] += values * LoadX(x + (size_t)min(t, last_x) * push.k, RUN_AT(at, run), push.k);
    }
  }
}

// The products of row `row` of both weights with kNt rows of x.
void Multiply(ARGS_ uint row, __global const float* x, uint last_x, float* sums) {
  const uint chunks = CHUNKS(push.k, push.blocks);
  for (uint half_glu = 0; half_glu < kHalves; ++half_glu) {
    const WeightRow weights = RowOfWeights(ARGS half_glu, row);
    float16 acc[kNt][2];
    for (uint t = 0; t < kNt; ++t) acc[t][0] = acc[t][1] = 0.0f;
    for (uint chunk = 0; chunk < chunks; ++chunk) {
      AddChunk(ARGS Decode(weights, chunk), chunk, x, last_x, acc);
    }
    for (uint t = 0; t < kNt; ++t) sums[half_glu * kNt + t] = SumOf(acc[t][0] + acc[t][1]);
  }
}

#define X_ROW(row) (AT(const float, x) + (size_t)(row)*push.k)

KERNEL(matvec) {
  const uint rows = ROWS_OF(rows);
  float sums[kHalves * kNt];
  FOR_EACH(row, push.n) {
#if kMode == kDense
    for (uint first = (uint)get_group_id(1) * kNt; first < rows;
         first += (uint)get_num_groups(1) * kNt) {
      Multiply(ARGS row, X_ROW(first), rows - 1 - first, sums);
      for (uint t = 0; t < kNt && first + t < rows; ++t) {
        const size_t to = (size_t)(first + t) * push.n + row;
        float y = sums[t];
        if (kGlu != 0) y = GeluTanh(y);
        if (kGlu == 1) y *= sums[(kHalves - 1) * kNt + t];
        if (kGlu == 2) y *= AT(float, extra)[to];
        AT(float, y)[to] = y;
      }
    }
#elif kMode == kWeighted
    for (uint t = (uint)get_group_id(1); t < rows; t += (uint)get_num_groups(1)) {
      float y = 0.0f;
      for (uint j = 0; j < push.used; ++j) {
        const uint pair = t * push.used + j;
        const int expert = AT(int, experts)[pair];
        if (expert < 0 || expert >= (int)push.count) {
          FAIL();
          continue;
        }
        Multiply(ARGS(uint) expert * push.expert_rows + row, X_ROW(pair), 0, sums);
        float weight = AT(float, extra)[pair];
        if (!IS_NULL(factor)) weight *= AT(float, factor)[expert];
        y = fma(weight, sums[0], y);
      }
      AT(float, y)[(size_t)t * push.n + row] = y;
    }
#else
    const uint pairs = rows * push.used;
    for (uint pair = (uint)get_group_id(1); pair < pairs; pair += (uint)get_num_groups(1)) {
      const int expert = AT(int, experts)[pair];
      if (expert < 0 || expert >= (int)push.count) {
        FAIL();
        continue;
      }
      Multiply(ARGS(uint) expert * push.expert_rows + row,
               X_ROW(kMode == kShared ? pair / push.used : pair), 0, sums);
      float y = sums[0];
      if (kGlu != 0) y = GeluTanh(y) * sums[kHalves - 1];
      AT(float, y)[(size_t)pair * push.n + row] = y;
    }
#endif
  }
}
