// Products of few rows with a matrix of weights. Accumulates in f32. Where a work-group is many
// work-items, kLanes of them share a row of weights and add up their parts; on a CPU a work-item
// takes a block of rows, 16 terms at a time.
#include "common.cl"
#define HAS_PROLOGUE kStaged
#include "matvec.args"
#include "math.kernel"
#include "weights.kernel"
#include "product.cl"
#include "reduce.kernel"
#include "lanes.kernel"

#define kHalves (kGlu == 1 ? 2 : 1)

// The operands of the products of one work-item.
typedef struct {
  __global const uchar *weight, *weight2;
  uint stride, blocks, n, k;
} Matrix;

WeightRow RowOf(const Matrix* m, uint half_glu, uint row) {
  return (WeightRow){(half_glu == 0 ? m->weight : m->weight2) + (size_t)row * m->stride, m->blocks};
}

#ifdef CPU
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

#else  // many work-items
#if HAS_PROLOGUE
#include "prologue.cl"
#define XPointer __local const float*
#else
#define XPointer __global const float*
#endif

// Four values of x from `at` on, 0 beyond its end.
float4 LoadX(XPointer x, uint at, uint k) {
#if kChecked
  return (float4)(at < k ? x[at] : 0.0f, at + 1 < k ? x[at + 1] : 0.0f,
                  at + 2 < k ? x[at + 2] : 0.0f, at + 3 < k ? x[at + 3] : 0.0f);
#elif HAS_PROLOGUE
  return *(__local const float4*)(x + at);
#else
  return *(__global const float4*)(x + at);
#endif
}

float Dot(Sixteen codes, const float4* v) {
  float sum = 0.0f;
  UNROLL for (uint i = 0; i < 4; ++i) {
    sum = fma(codes.four[i].x, v[i].x, sum);
    sum = fma(codes.four[i].y, v[i].y, sum);
    sum = fma(codes.four[i].z, v[i].z, sum);
    sum = fma(codes.four[i].w, v[i].w, sum);
  }
  return sum;
}

// A run of a chunk times sixteen values, whose sum is `plain`, added to `sum`.
float AddRun(const Chunk* c, uint run, const float4* v, float plain, float sum) {
#ifdef PLAIN
  return sum + Dot(CodesOf(c, run), v);
#else
  sum = fma(c->scale[run], Dot(CodesOf(c, run), v), sum);
  return kHasOffset ? fma(c->offset[run], plain, sum) : sum;
#endif
}

// Sixteen values of x and, if the weights want it, their sum.
float LoadRun(XPointer x, uint at, uint k, float4* v) {
  float4 plain = 0.0f;
  UNROLL for (uint i = 0; i < 4; ++i) {
    v[i] = LoadX(x, at + i * 4, k);
    if (kHasOffset) plain += v[i];
  }
  return plain.x + plain.y + plain.z + plain.w;
}

#define kWays (kHalves * kNr)

// Adds the products of rows [row, row + kNr) of the weights with kNt rows of x to `acc`.
INLINED void Accumulate(const Matrix* m, uint lane, uint row, uint first_weight_row, XPointer x,
                        uint last_x, float* acc) {
  const uint chunks = CHUNKS(m->k, m->blocks);
  WeightRow weights[kWays];
  UNROLL for (uint i = 0; i < kWays; ++i) {
    weights[i] = RowOf(m, i / kNr, first_weight_row + min(row + i % kNr, m->n - 1));
  }
#if kNt == 1
  // The values of x are read once for all rows of weights, and the weights of several chunks are on
  // their way at the same time.
  for (uint first = lane; first < chunks; first += kLanes * kUnroll) {
    RawChunk raw[kUnroll * kWays];
    UNROLL for (uint i = 0; i < kUnroll * kWays; ++i) {
      raw[i] = Load(weights[i % kWays], min(first + i / kWays * kLanes, chunks - 1));
    }
    UNROLL for (uint u = 0; u < kUnroll; ++u) {
      const uint chunk = first + u * kLanes;
      if (chunk >= chunks) break;
      const uint2 at = ChunkAt(chunk);
      float4 v[2][4];
      float plain[2];
      UNROLL for (uint run = 0; run < 2; ++run) plain[run] =
          LoadRun(x, RUN_AT(at, run), m->k, v[run]);
      UNROLL for (uint i = 0; i < kWays; ++i) {
        const Chunk c = Unpack(raw[u * kWays + i], chunk);
        UNROLL for (uint run = 0; run < 2; ++run) acc[i] =
            AddRun(&c, run, v[run], plain[run], acc[i]);
      }
    }
  }
#else
  // A chunk of weights is decoded once for all rows of x.
  for (uint chunk = lane; chunk < chunks; chunk += kLanes) {
    const uint2 at = ChunkAt(chunk);
    UNROLL for (uint i = 0; i < kWays; ++i) {
      const Chunk c = Decode(weights[i], chunk);
      UNROLL for (uint t = 0; t < kNt; ++t) {
        XPointer x_row = x + (size_t)min(t, last_x) * m->k;
        UNROLL for (uint run = 0; run < 2; ++run) {
          float4 v[4];
          const float plain = LoadRun(x_row, RUN_AT(at, run), m->k, v);
          acc[i * kNt + t] = AddRun(&c, run, v, plain, acc[i * kNt + t]);
        }
      }
    }
  }
#endif
}

INLINED void Clear(float* acc) { UNROLL for (uint i = 0; i < kWays * kNt; ++i) acc[i] = 0.0f; }

// The product of row r of the weights and row t of x, in all lanes.
INLINED float Result(LOCAL_ const float* acc, uint r, uint t) {
  const float y = SumOfLanes(LOCAL acc[r * kNt + t], kLanes);
  if (kGlu == 0) return y;
  if (kGlu == 2) return GeluTanh(y);
  return GeluTanh(y) * SumOfLanes(LOCAL acc[(kHalves - 1) * kNr * kNt + r * kNt + t], kLanes);
}

#define X_ROW(row) (AT(const float, x) + (size_t)(row)*push.k)
#define GROUP_Y ((uint)get_group_id(1))
#define GROUPS_Y ((uint)get_num_groups(1))

KERNEL(matvec) {
  const Matrix m = {
      AT(const uchar, weight), AT(const uchar, weight2), push.stride, push.blocks, push.n, push.k};
  const uint rows = ROWS_OF(rows);
  const uint lane = ME & (kLanes - 1);
  const uint at_a_time = THREADS / kLanes * kNr;  // rows of weights of a work-group
  float acc[kWays * kNt];
#if HAS_PROLOGUE
  {
    float4 x_row[kTurns];
    NormRow(LOCAL x_row, &push.prologue, PROLOGUE_PASSED GROUP + GROUP_Y == 0);
    UNROLL for (uint t = 0; t < kTurns; ++t) {
      if (IN_ROW(t)) SHARED(x)[ROW_PLACE(t)] = as_uint4(x_row[t]);
    }
    BARRIER();
  }
#endif
  for (uint block = GROUP * at_a_time; block < push.n; block += GROUPS * at_a_time) {
    const uint row = block + ME / kLanes * kNr;
#if kMode == kDense
    for (uint first = GROUP_Y * kNt; first < rows; first += GROUPS_Y * kNt) {
      Clear(acc);
#if HAS_PROLOGUE
      Accumulate(&m, lane, row, 0, (__local const float*)SHARED(x), 0, acc);
#else
      Accumulate(&m, lane, row, 0, X_ROW(first), rows - 1 - first, acc);
#endif
      UNROLL for (uint r = 0; r < kNr; ++r) {
        UNROLL for (uint t = 0; t < kNt; ++t) {
          const float y = Result(LOCAL acc, r, t);
          if (lane == 0 && row + r < push.n && first + t < rows) {
            const size_t to = (size_t)(first + t) * push.n + row + r;
            AT(float, y)[to] = kGlu == 2 ? y * AT(float, extra)[to] : y;
          }
        }
      }
    }
#elif kMode == kWeighted
    for (uint t = GROUP_Y; t < rows; t += GROUPS_Y) {
      float sum[kNr];
      UNROLL for (uint r = 0; r < kNr; ++r) sum[r] = 0.0f;
      for (uint j = 0; j < push.used; ++j) {
        const uint pair = t * push.used + j;
        const int expert = AT(int, experts)[pair];
        if (expert < 0 || expert >= (int)push.count) {
          FAIL();
          continue;
        }
        Clear(acc);
        Accumulate(&m, lane, row, (uint)expert * push.expert_rows, X_ROW(pair), 0, acc);
        float weight = AT(float, extra)[pair];
        if (!IS_NULL(factor)) weight *= AT(float, factor)[expert];
        UNROLL for (uint r = 0; r < kNr; ++r) sum[r] = fma(weight, acc[r], sum[r]);
      }
      UNROLL for (uint r = 0; r < kNr; ++r) {
        const float y = SumOfLanes(LOCAL sum[r], kLanes);
        if (lane == 0 && row + r < push.n) AT(float, y)[(size_t)t * push.n + row + r] = y;
      }
    }
#else
    const uint pairs = rows * push.used;
    for (uint pair = GROUP_Y; pair < pairs; pair += GROUPS_Y) {
      const int expert = AT(int, experts)[pair];
      const bool valid = expert >= 0 && expert < (int)push.count;
      if (!valid) FAIL();
      Clear(acc);
      if (valid) {
        Accumulate(&m, lane, row, (uint)expert * push.expert_rows,
                   X_ROW(kMode == kShared ? pair / push.used : pair), 0, acc);
      }
      UNROLL for (uint r = 0; r < kNr; ++r) {
        const float y = Result(LOCAL acc, r, 0);
        if (valid && lane == 0 && row + r < push.n) {
          AT(float, y)[(size_t)pair * push.n + row + r] = y;
        }
      }
    }
#endif
  }
}
#endif
