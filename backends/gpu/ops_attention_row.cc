// Emission of attention of one row, or of several that are computed side by side.
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>

#include "backends/gpu/attention.h"

namespace rullama::gpu {
namespace {

// Few, so that each tile of keys finds enough workgroups.
constexpr int64_t kMaxRowQueries = 2;  // of a workgroup
constexpr uint32_t kSplit = 16;        // invocations that share a key
constexpr int64_t kMaxRowParts = 64;   // room in attention_row.comp
constexpr int64_t kEvenBlocks = 64;    // of dims, so that heads in blocks begin at whole words

uint32_t ThreadsOf(const Target& target) {
  constexpr uint32_t kThreads = 256, kSoftwareThreads = 128;
  return target.Threads(target.can.is_cpu ? kSoftwareThreads : kThreads);
}

const HeadTransform* TransformOf(const PlanBuilder& plan, uint32_t operand) {
  const std::vector<HeadTransform>& all = plan.node().heads;
  const auto found = std::ranges::find(all, operand, &HeadTransform::operand);
  return found == all.end() ? nullptr : &*found;
}

kernels::HeadTransform RecordOf(PlanBuilder& plan, const HeadTransform& heads) {
  constexpr float kNoNorm = -1;
  kernels::HeadTransform record{.x = heads.x,
                                .weight = heads.norm_weight,
                                .eps = heads.norm ? heads.norm_eps : kNoNorm,
                                .half_rot = 0};
  if (heads.rope == RL_NO_OP) return record;
  const rl_op& rope = plan.graph().op(heads.rope);
  record.pos = rope.inputs[operands::Rope::pos];
  record.rates = RopeRates(plan, rope);
  record.half_rot = RotatedPairs(rope);
  return record;
}

// The rows of a value whose rows are constant; 0 for those of the step.
int64_t ConstantRows(const rl_value& value) {
  const rl_dim& rows = value.dims[0];
  return rows.t == 0 ? rows.constant : 0;
}

bool HasRowsOfStep(const rl_value& value) {
  const rl_dim& rows = value.dims[0];
  return rows.r == 0 && (rows.t == 0 || (rows.t == 1 && rows.constant == 0));
}

}  // namespace

bool IsOneRow(const sdk::GraphView& graph, const Target& target, const rl_op& attention) {
  const rl_value& q = graph.value(attention.inputs[operands::Attention::q]);
  const rl_value& keys = graph.value(attention.inputs[operands::Attention::k_new]);
  // One invocation handles four dimensions of a head.
  const PlanSteps steps = StepsOf(graph, target);
  return steps.decisive.t == 1 && steps.DecisiveRows(q) <= 1 && HasRowsOfStep(keys) &&
         Last(q) <= 4 * static_cast<int64_t>(ThreadsOf(target));
}

bool AttentionOfOneRow(PlanBuilder& plan) {
  const Target& target = plan.target();
  if (!target.can.row_attention || !IsOneRow(plan.graph(), target, plan.op())) return false;
  using operands::Attention;
  const AttentionShape a = AttentionShapeOf(plan);
  const bool in_blocks = sdk::IsBlockCacheType(a.type) || sdk::IsBlockCacheType(a.value_type);
  if (in_blocks && a.dim % kEvenBlocks != 0) return false;
  const int64_t group = GroupOf(a.HeadsPerKv(), kMaxRowQueries);
  const uint32_t threads = ThreadsOf(target);
  const uint32_t split = std::min(std::bit_floor(target.can.subgroup_size), kSplit);
  const int64_t keys = threads / split;
  const int64_t tiles = (a.MaxOld() + keys) / keys;  // the fresh one as well
  const int64_t parts = std::clamp<int64_t>(target.prefers.few_groups / (a.heads / group), 1,
                                            std::min(tiles, kMaxRowParts));
  const OldRows old = OldRowsOf(plan);
  const uint32_t q_value = plan.InputIndex(Attention::q);
  const uint32_t k_new = plan.InputIndex(Attention::k_new);
  const uint32_t v_new = plan.InputIndex(Attention::v_new);
  const HeadTransform* q_heads = TransformOf(plan, Attention::q);
  const HeadTransform* k_heads = TransformOf(plan, Attention::k_new);
  const HeadTransform* v_heads = TransformOf(plan, Attention::v_new);
  const kernels::HeadTransform none_made{.eps = 0, .half_rot = 0};
  kernels::HeadTransform q_record =
      RecordOf(plan, q_heads != nullptr ? *q_heads : HeadTransform{.x = q_value});
  q_record.last = plan.InputIndex(Attention::q_end);
  const int64_t fresh_rows = ConstantRows(plan.Input(Attention::k_new));
  const auto partial_heads = static_cast<uint64_t>(a.rows * parts * a.heads);
  const std::vector<uint32_t> none(static_cast<size_t>(a.rows * (a.heads / group)));
  DispatchBuilder(
      plan,
      kernels::AttentionRow{.threads = threads,
                            .heads = a.heads,
                            .kv_heads = a.kv_heads,
                            .group = group,
                            .dim = a.dim,
                            .key_type = a.type,
                            .slots = a.slots,
                            .capacity = a.capacity,
                            .window = a.window,
                            .canvas = a.canvas,
                            .scale = a.scale,
                            .split = split,
                            .teams = std::min(threads / (a.dim / 4), keys),
                            .one_row = plan.steps().HaveOneRow() && fresh_rows <= 1,
                            .value_type = a.value_type},
      {.q_pos = plan.InputIndex(Attention::q_pos),
       .q_slot = plan.InputIndex(Attention::q_slot),
       .kv_pos = plan.InputIndex(Attention::kv_pos),
       .kv_slot = plan.InputIndex(Attention::kv_slot),
       .past = old.past,
       .k_new = k_new,
       .v_new = v_new,
       .k_state = old.keys,
       .v_state = old.values,
       .y = plan.ResultIndex(),
       .partial = plan.scratch()
                      .New(partial_heads * static_cast<uint64_t>(a.dim + 4) * sizeof(float))
                      .address,
       .counters = plan.scratch().Constant(std::as_bytes(std::span(none))),
       .rows = plan.Input(Attention::q).dims[0],
       .fresh = fresh_rows,
       .transforms = {q_record, k_heads != nullptr ? RecordOf(plan, *k_heads) : none_made,
                      v_heads != nullptr ? RecordOf(plan, *v_heads) : none_made}})
      .Writes(k_heads != nullptr ? k_new : RL_NO_VALUE)
      .Writes(v_heads != nullptr ? v_new : RL_NO_VALUE)
      .Emit(static_cast<uint64_t>(parts), static_cast<uint64_t>(a.heads / group),
            static_cast<uint64_t>(a.rows));
  return true;
}

}  // namespace rullama::gpu
