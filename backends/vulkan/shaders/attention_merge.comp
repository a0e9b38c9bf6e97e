#version 460
// Joins the parts of attention.comp: y = sum w_i acc_i / sum w_i sum_i with w_i = exp(max_i - max).
// One workgroup for each head of each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_merge.args.glsl"
#include "math.kernel"

const uint kMaxParts = 64;
const uint kBatch = 16;  // parts on their way at a time
shared float shared_max[kMaxParts];
shared float shared_sum[kMaxParts];
shared float shared_weight[kMaxParts];

void main() {
  const uint all = At(p.rows, Step(p.step)) * p.heads;
  const uint index = GROUP.x;
  if (index >= all) return;
  F32 stats = F32(AdvanceBy(p.x, p.parts * all, p.dim * 4));
  const uint me = gl_LocalInvocationIndex;
  if (me < p.parts) {
    shared_max[me] = stats.v[me * all + index];
    shared_sum[me] = stats.v[(p.parts + me) * all + index];
  }
  barrier();
  float most = -kInfinity;
  for (uint i = 0; i < p.parts; ++i) most = max(most, shared_max[i]);
  if (me < p.parts) {
    shared_weight[me] = shared_max[me] == -kInfinity ? 0.0 : Exp(shared_max[me] - most);
  }
  barrier();
  float sum = 0.0;
  for (uint i = 0; i < p.parts; ++i) sum += shared_weight[i] * shared_sum[i];
  const float factor = sum > 0.0 ? 1.0 / sum : 0.0;
  for (uint d = me; d < p.dim; d += gl_WorkGroupSize.x) {
    float y = 0.0;
    uint i = 0;
    for (; i + kBatch <= p.parts; i += kBatch) {
      float part[kBatch];
      [[unroll]] for (uint j = 0; j < kBatch; ++j) {
        part[j] = F32(p.x).v[((i + j) * all + index) * p.dim + d];
      }
      [[unroll]] for (uint j = 0; j < kBatch; ++j) y = fma(shared_weight[i + j], part[j], y);
    }
    for (; i < p.parts; ++i)
      y = fma(shared_weight[i], F32(p.x).v[(i * all + index) * p.dim + d], y);
    F32(p.y).v[index * p.dim + d] = y * factor;
  }
}
