// The prologue of a GEMV (Prologue in kernels.def): norms of its row, which stays in local memory.
// Not on a CPU, whose work-groups are too many to repeat it.

// The row, four elements at a time: those at 4 * ROW_PLACE(t), 0 beyond the end.
#define kQuads (kColumns / 4)
#define kTurns ((kQuads + THREADS - 1) / THREADS)
#define ROW_PLACE(t) ((t)*THREADS + ME)
#define IN_ROW(t) (ROW_PLACE(t) < kQuads)

// A row of memory; where there is none, `otherwise`.
INLINED void LoadRow(__global const float4* from, bool there, float otherwise, float4* row) {
  UNROLL for (uint t = 0; t < kTurns; ++t) {
    row[t] = there && IN_ROW(t) ? from[ROW_PLACE(t)] : (float4)otherwise;
  }
}

INLINED float NormFactor(LOCAL_ const float4* row, float eps) {
  float squares = 0.0f;
  UNROLL for (uint t = 0; t < kTurns; ++t) squares += dot(row[t], row[t]);
  return 1.0f / sqrt(GroupSum(LOCAL squares) / (float)kColumns + eps);
}

// AT and IS_NULL for the memory of the prologue.
#define PROLOGUE_AT(T, name) ((__global T*)(prologue_##name##_buffer + p->name))
#define PROLOGUE_HAS(name) (p->name != ULONG_MAX)

// The row after its norms, in `row`. `leads`: whether this work-group writes the sum, if it is
// wanted. All that is read is on its way before the first of it is used.
INLINED void NormRow(LOCAL_ float4* row, const Prologue* p, PROLOGUE_PARAMETERS bool leads) {
  float4 residual[kTurns], weight[kTurns], norm_weight[kTurns];
  LoadRow(PROLOGUE_AT(const float4, x), true, 0.0f, row);
  LoadRow(PROLOGUE_AT(const float4, residual), PROLOGUE_HAS(residual), 0.0f, residual);
  LoadRow(PROLOGUE_AT(const float4, weight), PROLOGUE_HAS(weight), 1.0f, weight);
  LoadRow(PROLOGUE_AT(const float4, norm_weight), PROLOGUE_HAS(norm_weight), 1.0f, norm_weight);
  const float scale = PROLOGUE_HAS(scale) ? PROLOGUE_AT(const float, scale)[0] : 1.0f;
  if (PROLOGUE_HAS(residual)) {
    const float factor = NormFactor(LOCAL row, p->eps);
    UNROLL for (uint t = 0; t < kTurns; ++t) {
      row[t] = IN_ROW(t) ? (residual[t] + row[t] * factor * weight[t]) * scale : (float4)0.0f;
      if (leads && PROLOGUE_HAS(sum) && IN_ROW(t)) PROLOGUE_AT(float4, sum)[ROW_PLACE(t)] = row[t];
    }
    // PoCL 3.1 drops IN_ROW from the store above, and so writes zeros behind the row, where the
    // next barrier is that of the second norm, which has a condition. This one comes in between.
    BARRIER();
  }
  if (p->norm_eps >= 0.0f) {
    const float factor = NormFactor(LOCAL row, p->norm_eps);
    UNROLL for (uint t = 0; t < kTurns; ++t) row[t] = row[t] * factor * norm_weight[t];
  }
}
