// The prologue of a GEMV (Prologue in kernels.def) for one row of x at a time. The includer's push
// constants `p` have its place in memory, p.prologue, and the columns of the row, p.k; it says how
// many turns of the workgroup take a row, kTurns, and counts its invocations, Index().

layout(buffer_reference, std430, buffer_reference_align = 8) CONSTANT PrologueAt { Prologue v; };
layout(buffer_reference, std430, buffer_reference_align = 16) BUFFER Sums { vec4 v[]; };

// The row, four elements at a time: those at 4 * RowPlace(t), 0 beyond the end.
vec4 x_row[kTurns];
uint RowPlace(uint t) { return t * gl_WorkGroupSize.x + Index(); }
bool InRow(uint t) { return RowPlace(t) < p.k / 4; }

float Squares(vec4 x) { return x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w; }

float NormFactor(float eps) {
  float squares = 0.0;
  [[unroll]] for (uint t = 0; t < kTurns; ++t) squares += Squares(x_row[t]);
  return 1.0 / sqrt(GroupSum(squares) / float(p.k) + eps);
}

// Quads `first` + RowPlace(t) of values that may not be there.
vec4 RowOf(uvec2 values, uint first, uint t, float otherwise) {
  if (IsNull(values) || first + RowPlace(t) >= p.k / 4) return vec4(otherwise);
  return F32x4(values).v[first + RowPlace(t)];
}

// The values of row `row`.
uvec2 ValuesOf(uvec2 rows, uint row) { return IsNull(rows) ? rows : AdvanceBy(rows, row, p.k * 4); }

void LoadRow(uvec2 x, uint first) {
  [[unroll]] for (uint t = 0; t < kTurns; ++t) x_row[t] = RowOf(x, first, t, 0.0);
}

// Row `row`, normed. All that is read is on its way before the first of it is used.
void LoadNormedRow(uint row) {
  const Prologue r = PrologueAt(p.prologue).v;
  vec4 residual[kTurns], weight[kTurns], norm_weight[kTurns];
  LoadRow(ValuesOf(r.x, row), 0);
  const uvec2 residuals = ValuesOf(r.residual, row);
  [[unroll]] for (uint t = 0; t < kTurns; ++t) {
    residual[t] = RowOf(residuals, 0, t, 0.0);
    weight[t] = RowOf(r.weight, 0, t, 1.0);
    norm_weight[t] = RowOf(r.norm_weight, 0, t, 1.0);
  }
  const float scale = IsNull(r.scale) ? 1.0 : F32(r.scale).v[0];
  if (!IsNull(r.residual)) {
    const float factor = NormFactor(r.eps);
    const bool leads = GROUP.x == 0 && !IsNull(r.sum);
    const uvec2 sums = ValuesOf(r.sum, row);
    [[unroll]] for (uint t = 0; t < kTurns; ++t) {
      x_row[t] = (residual[t] + x_row[t] * factor * weight[t]) * scale;
      if (leads && InRow(t)) Sums(sums).v[RowPlace(t)] = x_row[t];
    }
  }
  if (r.norm_eps >= 0.0) {
    const float factor = NormFactor(r.norm_eps);
    [[unroll]] for (uint t = 0; t < kTurns; ++t) x_row[t] = x_row[t] * factor * norm_weight[t];
  }
}
