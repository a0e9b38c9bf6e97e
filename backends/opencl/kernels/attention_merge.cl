// Joins the parts of attention.cl: y = sum w_i acc_i / sum w_i sum_i with w_i = exp(max_i - max).
// One work-group for each head of each row.
#include "common.cl"
#include "attention_merge.args"
#include "math.kernel"

#define kMaxParts 64

KERNEL(attention_merge) {
  __local float shared_max[kMaxParts];
  __local float shared_sum[kMaxParts];
  __local float shared_weight[kMaxParts];
  const uint all = ROWS_OF(rows) * push.heads;
  const uint index = GROUP, parts = push.parts;
  if (index >= all) return;
  __global const float* stats = AT(float, x) + (size_t)parts * all * push.dim;
  FOR_MINE(i, parts) {
    shared_max[i] = stats[i * all + index];
    shared_sum[i] = stats[(parts + i) * all + index];
  }
  BARRIER();
  float most = -kInfinity;
  for (uint i = 0; i < parts; ++i) most = fmax(most, shared_max[i]);
  FOR_MINE(i, parts) {
    shared_weight[i] = shared_max[i] == -kInfinity ? 0.0f : Exp(shared_max[i] - most);
  }
  BARRIER();
  float sum = 0.0f;
  for (uint i = 0; i < parts; ++i) sum += shared_weight[i] * shared_sum[i];
  const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
  FOR_MINE(d, push.dim) {
    float y = 0.0f;
    for (uint i = 0; i < parts; ++i) {
      y = fma(shared_weight[i], AT(float, x)[((size_t)i * all + index) * push.dim + d], y);
    }
    AT(float, y)[(size_t)index * push.dim + d] = y * factor;
  }
}
