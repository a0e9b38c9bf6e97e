// Emission of the derivatives of attention over fresh rows.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "backends/gpu/attention.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kStatsThreads = 64;
constexpr uint32_t kGradientThreads = 512;

// The sizes of the current op, whose operands are those of In.
struct FreshShape {
  int64_t rows, keys, heads, kv_heads, dim;
};

template <typename In>
FreshShape FreshShapeOf(const PlanBuilder& plan) {
  const rl_value& q = plan.Input(In::q);
  const rl_value& k = plan.Input(In::k_new);
  return {.rows = plan.MaxRows(q),
          .keys = plan.MaxRows(k),
          .heads = q.dims[1].constant,
          .kv_heads = k.dims[1].constant,
          .dim = Last(q)};
}

// Rows of two matrices, of keys and values or of queries and their derivatives, that a workgroup
// has in shared memory beside the probabilities and gradients of 64 others. Registers hold as many
// sums.
int64_t StagedRows(const PlanBuilder& plan, const FreshShape& shape) {
  constexpr int64_t kMaxRowsOfTile = 16, kOthers = 64;
  constexpr int64_t kFacts = 1024;  // bytes of positions, means and so on
  const int64_t row = 2 * (shape.dim + 4) + 2 * kOthers;
  const int64_t elements = (static_cast<int64_t>(plan.tuning().shared_bytes) - kFacts) / 4;
  const int64_t rows = std::clamp<int64_t>(elements / row, 1, kMaxRowsOfTile);
  return rows > 4 ? rows / 4 * 4 : rows;  // they lie in vectors of four
}

// A kernel of the current op. `more`: the constants that it alone has.
template <typename Kernel, typename Attrs, typename... More>
Kernel FreshKernel(const PlanBuilder& plan, uint32_t threads, const FreshShape& s, int64_t group,
                   More... more) {
  const auto attrs = plan.attrs<Attrs>();
  return {
      threads,     s.heads, s.kv_heads, group, s.dim, attrs.window, attrs.mask == RL_MASK_CANVAS,
      attrs.scale, more...};
}

template <typename In>
kernels::FreshAttentionArgs FreshArgs(const PlanBuilder& plan) {
  kernels::FreshAttentionArgs args{.q = plan.InputIndex(In::q),
                                   .k = plan.InputIndex(In::k_new),
                                   .q_pos = plan.InputIndex(In::q_pos),
                                   .q_slot = plan.InputIndex(In::q_slot),
                                   .kv_pos = plan.InputIndex(In::kv_pos),
                                   .kv_slot = plan.InputIndex(In::kv_slot),
                                   .result = plan.ResultIndex(),
                                   .rows = plan.Input(In::q).dims[0],
                                   .keys = plan.Input(In::k_new).dims[0]};
  if constexpr (requires { In::dy; }) {
    args.v = plan.InputIndex(In::v_new);
    args.y = plan.InputIndex(In::y);
    args.lse = plan.InputIndex(In::lse);
    args.dy = plan.InputIndex(In::dy);
  }
  return args;
}

// A workgroup for each query row and up to 8 heads that share a kv head, if their queries fit 16
// KiB.
void AttentionStats(PlanBuilder& plan) {
  using In = operands::AttentionStats;
  constexpr int64_t kMaxGroup = 8, kElements = 4096;
  const FreshShape s = FreshShapeOf<In>(plan);
  const int64_t group =
      GroupOf(s.heads / s.kv_heads, std::clamp(kElements / s.dim, int64_t{1}, kMaxGroup));
  DispatchBuilder(
      plan,
      FreshKernel<kernels::AttentionStats, rl_attention_stats_attrs>(plan, kStatsThreads, s, group),
      FreshArgs<In>(plan))
      .Emit(static_cast<uint64_t>(s.rows * (s.heads / group)));
}

void AttentionGradQ(PlanBuilder& plan) {
  using In = operands::AttentionGradQ;
  const FreshShape s = FreshShapeOf<In>(plan);
  const int64_t staged = StagedRows(plan, s);
  const int64_t group = GroupOf(s.heads / s.kv_heads, staged);
  const int64_t own_rows = std::max<int64_t>(1, staged / group);
  DispatchBuilder(plan,
                  FreshKernel<kernels::AttentionGradQ, rl_attention_grad_q_attrs>(
                      plan, kGradientThreads, s, group, own_rows),
                  FreshArgs<In>(plan))
      .Emit(static_cast<uint64_t>((s.rows + own_rows - 1) / own_rows * (s.heads / group)));
}

void AttentionGradKv(PlanBuilder& plan) {
  using In = operands::AttentionGradKv;
  const FreshShape s = FreshShapeOf<In>(plan);
  const int64_t keys = StagedRows(plan, s);
  kernels::FreshAttentionArgs args = FreshArgs<In>(plan);
  args.dv = plan.ResultIndex(1);
  DispatchBuilder(plan,
                  FreshKernel<kernels::AttentionGradKv, rl_attention_grad_kv_attrs>(
                      plan, kGradientThreads, s, s.heads / s.kv_heads, keys),
                  args)
      .Emit(static_cast<uint64_t>((s.keys + keys - 1) / keys * s.kv_heads));
}

template <uint32_t kQueries, uint32_t kKeys>
std::string RefuseFresh(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits) {
  constexpr int64_t kMaxDim = 1024;  // a key and a value in shared memory
  if (std::string reason = RefuseShapes(graph, op, limits); !reason.empty()) return reason;
  if (TypeOf(*graph.input(op, kKeys)) != DType::kF32) return "keys must be f32";
  const int64_t dim = Last(*graph.input(op, kQueries));
  return dim % 4 != 0 || dim > kMaxDim ? "head dim " + std::to_string(dim) : "";
}

std::string RefuseMixRows(const sdk::GraphView& /*graph*/, const rl_op& /*op*/,
                          const DeviceLimits& /*limits*/) {
  return "attention runs whole";
}

}  // namespace

const OpRow rows::kAttentionStats = {
    RL_OP_attention_stats,
    RefuseFresh<operands::AttentionStats::q, operands::AttentionStats::k_new>, AttentionStats};
const OpRow rows::kAttentionGradQ = {
    RL_OP_attention_grad_q,
    RefuseFresh<operands::AttentionGradQ::q, operands::AttentionGradQ::k_new>, AttentionGradQ};
const OpRow rows::kAttentionGradKv = {
    RL_OP_attention_grad_kv,
    RefuseFresh<operands::AttentionGradKv::q, operands::AttentionGradKv::k_new>, AttentionGradKv};
const OpRow rows::kAttentionMixRows = {RL_OP_attention_mix_rows, RefuseMixRows, nullptr};

}  // namespace rullama::gpu
