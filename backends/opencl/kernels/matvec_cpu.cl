// Products of few rows with a matrix of weights on a CPU: a work-item takes a block of rows, 16
// terms at a time. Accumulates in f32.

// The operands of the products of one work-item.
typedef struct {
  __global const uchar *weight, *weight2;
  uint stride, blocks, n, k;
} Matrix;

WeightRow RowOf(const Matrix* m, uint half_glu, uint row) {
  return (WeightRow){(half_glu == 0 ? m->weight : m->weight2) + (size_t)row * m->stride, m->blocks};
}

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
void AddChunk(const Chunk* c, uint chunk, const Matrix* m, __global const float* x, uint last_x,
              float16 (*acc)[2]) {
  const uint2 at = ChunkAt(chunk);
  UNROLL for (uint run = 0; run < 2; ++run) {
#ifdef PLAIN
    const float16 values = c->plain[run];
#else
    const float offset = (kHasOffset ? c->offset[run] : 0.0f) - c->scale[run] * kBias;
    const float16 values = convert_float16(as_uchar16(c->codes[run])) * c->scale[run] + offset;
#endif
    UNROLL for (uint t = 0; t < kNt; ++t) {
      acc[t][run] += values * LoadX(x + (size_t)min(t, last_x) * m->k, RUN_AT(at, run), m->k);
    }
  }
}

// The products of row `row` of both weights with kNt rows of x.
void Multiply(const Matrix* m, uint row, __global const float* x, uint last_x, float* sums) {
  const uint chunks = CHUNKS(m->k, m->blocks);
  for (uint half_glu = 0; half_glu < kHalves; ++half_glu) {
    const WeightRow weights = RowOf(m, half_glu, row);
    float16 acc[kNt][2];
    for (uint t = 0; t < kNt; ++t) acc[t][0] = acc[t][1] = 0.0f;
#ifdef WHOLE_BLOCKS
    for (uint first = 0; first < chunks; first += 8) {
      const Factors f = FactorsOf(weights, first / 8);
      UNROLL for (uint chunk = 0; chunk < 8; ++chunk) {
        const Chunk c = DecodeWith(&f, weights, first + chunk);
        AddChunk(&c, first + chunk, m, x, last_x, acc);
      }
    }
#else
    for (uint chunk = 0; chunk < chunks; ++chunk) {
      const Chunk c = Decode(weights, chunk);
      AddChunk(&c, chunk, m, x, last_x, acc);
    }
#endif
    for (uint t = 0; t < kNt; ++t) sums[half_glu * kNt + t] = SumOf(acc[t][0] + acc[t][1]);
  }
}

#define X_ROW(row) (AT(const float, x) + (size_t)(row)*push.k)

KERNEL(matvec) {
  const Matrix m = {
      AT(const uchar, weight), AT(const uchar, weight2), push.stride, push.blocks, push.n, push.k};
  const uint rows = ROWS_OF(rows);
  float sums[kHalves * kNt];
  FOR_EACH(row, push.n) {
#if kMode == kDense
    for (uint first = (uint)get_group_id(1) * kNt; first < rows;
         first += (uint)get_num_groups(1) * kNt) {
      Multiply(&m, row, X_ROW(first), rows - 1 - first, sums);
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
        Multiply(&m, (uint)expert * push.expert_rows + row, X_ROW(pair), 0, sums);
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
      Multiply(&m, (uint)expert * push.expert_rows + row,
               X_ROW(kMode == kShared ? pair / push.used : pair), 0, sums);
      float y = sums[0];
      if (kGlu != 0) y = GeluTanh(y) * sums[kHalves - 1];
      AT(float, y)[(size_t)pair * push.n + row] = y;
    }
#endif
  }
}
