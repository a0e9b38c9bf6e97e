// attention of many rows on matrix units.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>

#include "backends/gpu/attention.h"

namespace rullama::gpu {
namespace {

// These numbers are also in attention_coop.comp.
constexpr uint32_t kThreads = 256;
constexpr int64_t kMatrix = 16;
constexpr int64_t kMaxQueries = 32;       // of a workgroup
constexpr int64_t kQueryElements = 8192;  // of shared memory for their halves
constexpr int64_t kDimStep = 128;         // of eight subgroups with a matrix each
// Rows from which on its tiles have something to do.
constexpr int64_t kFewestRows = 16;

int64_t QueriesOf(int64_t dim) {
  const auto fit = static_cast<uint64_t>(std::min(kMaxQueries, kQueryElements / dim));
  return static_cast<int64_t>(std::bit_floor(fit));
}

bool IsHalf(const rl_value& value) { return TypeOf(value) == DType::kF16; }

}  // namespace

bool AttentionOnMatrixUnits(PlanBuilder& plan) {
  using operands::Attention;
  const auto& a = plan.attrs<rl_attention_attrs>();
  const rl_value& q = plan.Input(Attention::q);
  const rl_value& state = plan.Input(Attention::k_state);
  const int64_t rows = plan.MaxRows(q), heads = q.dims[1].constant, dim = Last(q);
  const int64_t fresh = plan.MaxRows(plan.Input(Attention::k_new));
  const int64_t kv_heads = state.dims[2].constant, capacity = state.dims[1].constant;
  if (!plan.tuning().cooperative_matrix || !plan.tuning().special_kernels || !IsHalf(state) ||
      rows < kFewestRows || fresh < kMatrix || capacity % kMatrix != 0 || dim % kDimStep != 0 ||
      dim > kQueryElements / kMatrix) {
    return false;
  }
  const int64_t queries = QueriesOf(dim), group = std::min(heads / kv_heads, queries);
  if (queries % group != 0 || heads / kv_heads % group != 0) return false;
  const int64_t query_rows = queries / group;
  DispatchBuilder(plan,
                  kernels::AttentionCoop{.threads = kThreads,
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .group = group,
                                         .queries = queries,
                                         .dim = dim,
                                         .slots = state.dims[0].constant,
                                         .capacity = capacity,
                                         .window = a.window,
                                         .canvas = a.mask == RL_MASK_CANVAS,
                                         .scale = a.scale,
                                         .max_fresh = fresh},
                  AttentionArgsOf(plan, plan.ResultIndex()))
      .Emit(1, static_cast<uint64_t>(heads / group),
            static_cast<uint64_t>((rows + query_rows - 1) / query_rows));
  return true;
}

}  // namespace rullama::gpu
