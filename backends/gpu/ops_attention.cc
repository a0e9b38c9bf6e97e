// Emission of attention: the choice of its kernel, and the kernel that takes any shape.
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/operands.h>
#include <rullama/sdk/slots.h>

#include <bit>
#include <span>
#include <vector>

#include "backends/gpu/attention.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kAttentionThreads = 128;   // of attention, which wants no fewer
constexpr int64_t kMaxTileQueries = 16;       // of a workgroup
constexpr int64_t kMaxQueriesInSoftware = 4;  // whose compilers are slow with many registers
constexpr int64_t kQueryBytes = 16384;        // of shared memory for them
constexpr int64_t kKeys = 32;                 // of a tile

// Queries of a workgroup.
int64_t MaxQueries(const PlanBuilder& plan, int64_t dim) {
  const int64_t most = plan.target().can.is_cpu ? kMaxQueriesInSoftware : kMaxTileQueries;
  const int64_t fit = kQueryBytes / (dim * static_cast<int64_t>(sizeof(float)));
  return std::clamp<int64_t>(fit, 1, most);
}

int64_t TilesOf(int64_t keys) { return (keys + kKeys - 1) / kKeys; }

void Merge(PlanBuilder& plan, const Scratch& partial, int64_t parts) {
  const rl_value& y = plan.Result();
  const int64_t heads = y.dims[1].constant;
  DispatchBuilder(plan, kernels::AttentionMerge{.threads = kAttentionThreads},
                  {.x = partial,
                   .y = plan.ResultIndex(),
                   .rows = y.dims[0],
                   .heads = heads,
                   .dim = Last(y),
                   .parts = parts})
      .Emit(static_cast<uint64_t>(plan.MaxRows(y) * heads));
}

void AttentionInTiles(PlanBuilder& plan) {
  const AttentionShape a = AttentionShapeOf(plan);
  const int64_t max_queries = MaxQueries(plan, a.dim);
  const int64_t group = GroupOf(a.HeadsPerKv(), max_queries);
  const int64_t decisive = plan.DecisiveRows(plan.Input(operands::Attention::q));
  const int64_t query_rows = std::clamp<int64_t>(max_queries / group, 1, decisive);
  const int64_t tiles = TilesOf(a.MaxOld()) + TilesOf(a.fresh);
  // With more rows of queries there is work for all workgroups.
  const bool split = decisive <= sdk::kFewRows && !plan.target().can.is_cpu;
  const int64_t parts = split ? std::min<int64_t>(tiles, kernels::AttentionMerge::kMaxParts) : 1;
  Scratch partial;
  if (parts > 1) {
    partial = plan.scratch().New(static_cast<uint64_t>(parts * a.rows * a.heads * (a.dim + 2)) *
                                 sizeof(float));
  }
  DispatchBuilder(plan,
                  kernels::Attention{.threads = kAttentionThreads,
                                     .heads = a.heads,
                                     .kv_heads = a.kv_heads,
                                     .group = group,
                                     .rows = query_rows,
                                     .dim = a.dim,
                                     .key_type = static_cast<uint32_t>(a.type),
                                     .value_type = static_cast<uint32_t>(a.value_type),
                                     .slots = a.slots,
                                     .capacity = a.capacity,
                                     .window = a.window,
                                     .canvas = a.canvas,
                                     .scale = a.scale,
                                     .batch = plan.target().can.is_cpu ? 2 : 8},
                  AttentionArgsOf(plan, parts > 1 ? BufferArgument(partial) : plan.ResultIndex()))
      .Emit(static_cast<uint64_t>(parts), static_cast<uint64_t>(a.heads / group),
            static_cast<uint64_t>((a.rows + query_rows - 1) / query_rows));
  if (parts > 1) Merge(plan, partial, parts);
}

void EmitAttention(PlanBuilder& plan) {
  const bool special =
      AttentionOfOneRow(plan) || AttentionOnMatrixUnits(plan) || FreshAttentionOnMatrixUnits(plan);
  if (!special) AttentionInTiles(plan);
}

std::string RefuseAttention(const sdk::GraphView& graph, const rl_op& op,
                            const DeviceLimits& limits) {
  using operands::Attention;
  constexpr int64_t kMaxHeadDim = 4096;  // a query fits the shared memory of attention
  if (std::string reason = RefuseShapes(graph, op, limits); !reason.empty()) return reason;
  for (const uint32_t i : {Attention::k_new, Attention::v_new}) {
    const DType type = TypeOf(*graph.input(op, i));
    if (!sdk::IsCacheType(type)) return "keys and values of type " + std::string(NameOf(type));
  }
  const int64_t dim = Last(*graph.input(op, Attention::q));
  return dim % 4 != 0 || dim > kMaxHeadDim ? "head dim " + std::to_string(dim) : "";
}

std::string RefusePart(const sdk::GraphView& /*graph*/, const rl_op& /*op*/,
                       const DeviceLimits& /*limits*/) {
  return "attention runs whole";
}

}  // namespace

bool HasPlainCache(const sdk::GraphView& graph, const rl_op& op) {
  const DType keys = TypeOf(*graph.input(op, operands::Attention::k_new));
  return (keys == DType::kF16 || keys == DType::kF32) &&
         keys == TypeOf(*graph.input(op, operands::Attention::v_new));
}

AttentionShape AttentionShapeOf(const PlanBuilder& plan) {
  using operands::Attention;
  const auto& attrs = plan.attrs<rl_attention_attrs>();
  const rl_value& q = plan.Input(Attention::q);
  const rl_value& keys = plan.Input(Attention::k_new);
  AttentionShape shape{.rows = plan.MaxRows(q),
                       .fresh = plan.MaxRows(keys),
                       .heads = q.dims[1].constant,
                       .kv_heads = keys.dims[1].constant,
                       .dim = Last(q),
                       .slots = plan.MaxRows(keys),
                       .capacity = 1,
                       .window = attrs.window,
                       .canvas = attrs.mask == RL_MASK_CANVAS,
                       .scale = attrs.scale,
                       .type = TypeOf(keys),
                       .value_type = TypeOf(plan.Input(Attention::v_new))};
  if (const rl_value* state = plan.graph().input(plan.op(), Attention::k_state)) {
    shape.slots = state->dims[0].constant;
    shape.capacity = state->dims[1].constant;
  }
  return shape;
}

OldRows OldRowsOf(PlanBuilder& plan) {
  using operands::Attention;
  const uint32_t past = plan.InputIndex(Attention::past);
  if (past != RL_NO_VALUE) {
    return {plan.InputIndex(Attention::k_state), plan.InputIndex(Attention::v_state), past};
  }
  const std::vector<int32_t> none(static_cast<size_t>(AttentionShapeOf(plan).slots));
  const auto bytes = std::as_bytes(std::span(none));
  return {plan.InputIndex(Attention::k_new), plan.InputIndex(Attention::v_new),
          Scratch{plan.scratch().Constant(bytes), bytes.size()}};
}

kernels::AttentionArgs AttentionArgsOf(PlanBuilder& plan, const BufferArgument& y) {
  using operands::Attention;
  const OldRows old = OldRowsOf(plan);
  return {.q = plan.InputIndex(Attention::q),
          .k_new = plan.InputIndex(Attention::k_new),
          .v_new = plan.InputIndex(Attention::v_new),
          .k_state = old.keys,
          .v_state = old.values,
          .q_pos = plan.InputIndex(Attention::q_pos),
          .q_slot = plan.InputIndex(Attention::q_slot),
          .kv_pos = plan.InputIndex(Attention::kv_pos),
          .kv_slot = plan.InputIndex(Attention::kv_slot),
          .past = old.past,
          .q_end = plan.graph().input(plan.op(), Attention::q_end) == nullptr
                       ? plan.InputIndex(Attention::q_pos)
                       : plan.InputIndex(Attention::q_end),
          .y = y,
          .rows = plan.Input(Attention::q).dims[0],
          .fresh = plan.Input(Attention::k_new).dims[0]};
}

int64_t GroupOf(int64_t heads_per_kv, int64_t most) {
  int64_t group = std::min(heads_per_kv, most);
  while (heads_per_kv % group != 0) --group;
  return group;
}

int64_t AttentionShape::MaxOld() const {
  return window > 0 ? std::min(window, capacity) : capacity;
}

const OpRow rows::kAttention = {RL_OP_attention, RefuseAttention, EmitAttention};
const OpRow rows::kAttentionScores = {RL_OP_attention_scores, RefusePart, nullptr};
const OpRow rows::kAttentionMix = {RL_OP_attention_mix, RefusePart, nullptr};

}  // namespace rullama::gpu
