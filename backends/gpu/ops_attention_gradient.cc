// Emission of the derivatives of attention over fresh rows.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "backends/gpu/attention.h"
#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kStatsThreads = 64;
constexpr uint32_t kGradientThreads = 256;
constexpr int64_t kFewestOwn = 8;  // rows that a workgroup has of its own

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

// The rows that a workgroup has of its own, pairs or keys: as many as registers have sums for and
// shared memory has scores for. `results`: numbers that it keeps of each pair and key.
int64_t OwnRows(const PlanBuilder& plan, const FreshShape& shape, int64_t results) {
  constexpr int64_t kMost = 32, kSums = 8192;
  constexpr int64_t kOthers = 64, kPitch = 5 * 16;  // attention_grad.kernel
  constexpr int64_t kFacts = 2048;                  // bytes of positions, means and so on
  if (plan.target().Threads(kGradientThreads) == 1) return kFewestOwn;
  const auto fits = [&](int64_t own) {
    const int64_t bytes = 2 * (kOthers + own) * kPitch + results * kOthers * own * 4 + kFacts;
    return own * shape.dim <= kSums &&
           bytes <= static_cast<int64_t>(plan.target().can.shared_bytes);
  };
  int64_t own = kMost;
  while (own > kFewestOwn && !fits(own)) own /= 2;
  return own;
}

// The number of pairs (query row, head) of a workgroup: halved while fewer than half of
// Target::few_groups would run.
int64_t OwnPairs(const PlanBuilder& plan, const FreshShape& shape) {
  int64_t pairs = OwnRows(plan, shape, 1);
  const auto is_idle = [&] {
    return shape.rows * shape.heads / pairs < plan.target().prefers.few_groups / 2;
  };
  while (pairs > kFewestOwn && is_idle()) pairs /= 2;
  return pairs;
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
    args.lse = plan.InputIndex(In::lse);
    args.dy = plan.InputIndex(In::dy);
  }
  return args;
}

// Without matrix units, a workgroup for each query row and up to 8 heads that share a kv head, if
// their queries fit 16 KiB.
void AttentionStats(PlanBuilder& plan) {
  using In = operands::AttentionStats;
  if (AttentionStatsOnMatrixUnits(plan)) return;
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

// The mean gradient of the probabilities of each pair of a query row and a head.
template <typename In>
Scratch PairMeans(PlanBuilder& plan, const FreshShape& s) {
  constexpr uint32_t kThreads = 64;
  const auto pairs = static_cast<uint64_t>(s.rows * s.heads);
  const Scratch means = plan.scratch().Take(pairs * sizeof(float));
  DispatchBuilder(plan, kernels::PairMeans{.threads = kThreads},
                  {.y = plan.InputIndex(In::y),
                   .dy = plan.InputIndex(In::dy),
                   .means = means,
                   .rows = plan.Input(In::q).dims[0],
                   .heads = s.heads,
                   .dim = s.dim})
      .Emit(CeilDiv(pairs, kThreads));
  return means;
}

void AttentionGradQ(PlanBuilder& plan) {
  using In = operands::AttentionGradQ;
  const FreshShape s = FreshShapeOf<In>(plan);
  const int64_t pairs = OwnPairs(plan, s);
  const int64_t group = GroupOf(s.heads / s.kv_heads, pairs);
  const int64_t own_rows = pairs / group;
  kernels::FreshAttentionArgs args = FreshArgs<In>(plan);
  const Scratch means = PairMeans<In>(plan, s);
  args.means = means;
  DispatchBuilder(plan,
                  FreshKernel<kernels::AttentionGradQ, rl_attention_grad_q_attrs>(
                      plan, kGradientThreads, s, group, pairs),
                  args)
      .Emit(static_cast<uint64_t>((s.rows + own_rows - 1) / own_rows * (s.heads / group)));
  plan.scratch().GiveBack(means);
}

// The heads are divided into parts where there are too few keys to keep the device busy.
void AttentionGradKv(PlanBuilder& plan) {
  using In = operands::AttentionGradKv;
  const FreshShape s = FreshShapeOf<In>(plan);
  const int64_t keys = OwnRows(plan, s, 2);
  const int64_t heads = s.heads / s.kv_heads;
  const int64_t tiles = (s.keys + keys - 1) / keys * s.kv_heads;
  const int64_t wanted = std::clamp<int64_t>(plan.target().prefers.few_groups / tiles, 1, heads);
  const int64_t group = GroupOf(heads, heads / wanted);
  const auto parts = static_cast<uint64_t>(heads / group);
  const int64_t columns = s.kv_heads * s.dim;
  kernels::FreshAttentionArgs args = FreshArgs<In>(plan);
  const Scratch means = PairMeans<In>(plan, s);
  args.means = means;
  args.dv = plan.ResultIndex(1);
  Scratch dk, dv;
  if (parts > 1) {
    const uint64_t bytes = parts * static_cast<uint64_t>(s.keys * columns) * sizeof(float);
    args.result = dk = plan.scratch().Take(bytes);
    args.dv = dv = plan.scratch().Take(bytes);
  }
  DispatchBuilder(plan,
                  FreshKernel<kernels::AttentionGradKv, rl_attention_grad_kv_attrs>(
                      plan, kGradientThreads, s, group, keys),
                  args)
      .Emit(static_cast<uint64_t>(tiles) * parts);
  plan.scratch().GiveBack(means);
  if (parts == 1) return;
  const rl_dim rows = plan.Input(In::k_new).dims[0];
  const auto partial = [&](const Scratch& sums) {
    return PartialSums{.sums = sums, .rows = rows, .n = columns, .parts = parts};
  };
  AddParts(plan, partial(dk), {.value = plan.ResultIndex()});
  AddParts(plan, partial(dv), {.value = plan.ResultIndex(1)});
  plan.scratch().GiveBack(dk);
  plan.scratch().GiveBack(dv);
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
