// What a product of one row does to it first (Prologue in plan_builder.h). The includer's push constants
// `p` say where in p.prologue; its Index() counts the invocations.

// Bit 0: a residual norm, with a weight (bit 2) and a scale (bit 3); bit 1: a norm, with a weight (bit 4).
layout(constant_id = 9) const uint kPrologue = 0;
layout(constant_id = 10) const uint kColumns = 32;

layout(buffer_reference, std430, buffer_reference_align = 8) readonly BUFFER Prologue {
  uvec2 x, residual, weight, scale, sum, norm_weight;
  float eps, norm_eps;
};

// The row, four elements at a time: those at 4 * RowPlace(t), 0 beyond the end.
const uint kTurns = (kColumns / 4 + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
vec4 x_row[kTurns];
uint RowPlace(uint t) { return t * gl_WorkGroupSize.x + Index(); }
bool InRow(uint t) { return RowPlace(t) < kColumns / 4; }

vec4 RowOf(uvec2 values, uint t) {
  return F32x4(values).v[min(RowPlace(t), kColumns / 4 - 1)];
}

float Squares(vec4 x) { return x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w; }

float NormFactor(float eps) {
  float squares = 0.0;
  [[unroll]] for (uint t = 0; t < kTurns; ++t) squares += Squares(x_row[t]);
  return 1.0 / sqrt(WorkgroupSum(squares) / float(kColumns) + eps);
}

void LoadRow(uvec2 x) {
  [[unroll]] for (uint t = 0; t < kTurns; ++t) x_row[t] = InRow(t) ? RowOf(x, t) : vec4(0);
}

// All that is read is on its way before the first of it is used.
void LoadNormedRow() {
  Prologue r = Prologue(p.prologue);
  vec4 residual[kTurns], weight[kTurns], norm_weight[kTurns];
  LoadRow(r.x);
  [[unroll]] for (uint t = 0; t < kTurns; ++t) {
    residual[t] = (kPrologue & 1) != 0 ? RowOf(r.residual, t) : vec4(0);
    weight[t] = (kPrologue & 4) != 0 ? RowOf(r.weight, t) : vec4(1);
    norm_weight[t] = (kPrologue & 16) != 0 ? RowOf(r.norm_weight, t) : vec4(1);
  }
  const float scale = (kPrologue & 8) != 0 ? F32(r.scale).v[0] : 1.0;
  if ((kPrologue & 1) != 0) {
    const float factor = NormFactor(r.eps);
    const bool leads = GROUP.x + GROUP.y == 0 && !IsNull(r.sum);
    [[unroll]] for (uint t = 0; t < kTurns; ++t) {
      if (!InRow(t)) continue;
      x_row[t] = (residual[t] + x_row[t] * factor * weight[t]) * scale;
      if (leads) {
        [[unroll]] for (uint j = 0; j < 4; ++j) F32(r.sum).v[RowPlace(t) * 4 + j] = x_row[t][j];
      }
    }
  }
  if ((kPrologue & 2) != 0) {
    const float factor = NormFactor(r.norm_eps);
    [[unroll]] for (uint t = 0; t < kTurns; ++t) x_row[t] = x_row[t] * factor * norm_weight[t];
  }
}
