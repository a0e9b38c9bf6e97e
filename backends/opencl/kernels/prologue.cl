// What a product of one row does to it first (Prologue in gpu/plan_builder.h): leaves the row in local
// memory. Included after product.cl; not on a CPU, whose work-groups are too many to repeat it.

// Bit 0: a residual norm, with a weight (bit 2) and a scale (bit 3); bit 1: a norm, with a weight (bit 4).
#define kPrologue C9
#define kColumns C10

// The row, four elements at a time: those at 4 * ROW_PLACE(t), 0 beyond the end.
#define kQuads (kColumns / 4)
#define kTurns ((kQuads + THREADS - 1) / THREADS)
#define ROW_PLACE(t) ((t)*THREADS + ME)
#define IN_ROW(t) (ROW_PLACE(t) < kQuads)

INLINED void LoadRow(__global const float4 *from, float4 *row) {
  UNROLL for (uint t = 0; t < kTurns; ++t) row[t] = IN_ROW(t) ? from[ROW_PLACE(t)] : (float4)0.0f;
}

INLINED float NormFactor(const float4 *row, float eps, __local float *shared) {
  float squares = 0.0f;
  UNROLL for (uint t = 0; t < kTurns; ++t) squares += dot(row[t], row[t]);
  return 1.0f / sqrt(GroupSum(squares, shared) / (float)kColumns + eps);
}

#define PROLOGUE_BUFFERS                                                              \
  BUFFER(prologue_x) BUFFER(prologue_residual) BUFFER(prologue_weight) BUFFER(prologue_scale) \
      BUFFER(prologue_sum) BUFFER(prologue_norm_weight)
// Of the prologue's memory, as AT.
#define PROLOGUE_AT(T, name) ((__global T *)(prologue_##name##_buffer + push.prologue.name))

// The row after its norms, in `row`. `leads`: whether this work-group writes the sum, if it is wanted.
// All that is read is on its way before the first of it is used.
INLINED void NormRow(float4 *row, __global const float4 *x, __global const float4 *residual,
             __global const float4 *weight, __global const float *scale, __global float4 *sum,
             __global const float4 *norm_weight, float eps, float norm_eps, bool leads,
             __local float *shared) {
  float4 more[kTurns], factor1[kTurns], factor2[kTurns];
  LoadRow(x, row);
  if (kPrologue & 1) LoadRow(residual, more);
  if (kPrologue & 4) LoadRow(weight, factor1);
  if (kPrologue & 16) LoadRow(norm_weight, factor2);
  if (kPrologue & 1) {
    const float times = (kPrologue & 8) ? scale[0] : 1.0f;
    const float factor = NormFactor(row, eps, shared);
    UNROLL for (uint t = 0; t < kTurns; ++t) {
      float4 normed = row[t] * factor;
      if (kPrologue & 4) normed *= factor1[t];
      row[t] = (more[t] + normed) * times;
      if (leads && IN_ROW(t)) sum[ROW_PLACE(t)] = row[t];
    }
  }
  if (kPrologue & 2) {
    const float factor = NormFactor(row, norm_eps, shared);
    UNROLL for (uint t = 0; t < kTurns; ++t) {
      row[t] *= factor;
      if (kPrologue & 16) row[t] *= factor2[t];
    }
  }
}
