// attention of one row.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>

#include "backends/gpu/attention.h"

namespace rullama::gpu {
namespace {

// Few, so that each tile of keys finds enough workgroups.
constexpr int64_t kMaxQueries = 2;  // of a workgroup
constexpr uint32_t kSplit = 16;     // invocations that share a key
constexpr int64_t kMaxParts = 64;   // room in attention_row.comp

constexpr float kNoNorm = -1;  // in place of eps

// As attention_row.comp reads it. Heads that are not transformed have no addresses.
struct HeadsRecord {
  DeviceAddress x = 0, weight = 0, pos = 0, rates = 0;
  float eps = 0;
  uint32_t half_rot = 0;
};

uint32_t ThreadsOf(const Tuning& tuning) {
  constexpr uint32_t kThreads = 256, kSoftwareThreads = 128;
  return tuning.Threads(tuning.software ? kSoftwareThreads : kThreads);
}

const HeadTransform* TransformOf(const PlanBuilder& plan, uint32_t operand) {
  const std::vector<HeadTransform>& all = plan.node().heads;
  const auto found = std::ranges::find(all, operand, &HeadTransform::operand);
  return found == all.end() ? nullptr : &*found;
}

// Declares what transformed heads are computed from.
HeadsRecord RecordOf(PlanBuilder& plan, DispatchBuilder& dispatch, const HeadTransform& heads) {
  HeadsRecord record{.x = plan.addresses().AddressOf(heads.x),
                     .weight = plan.addresses().AddressOf(heads.norm_weight),
                     .eps = heads.norm ? heads.norm_eps : kNoNorm};
  dispatch.Reads(heads.x);
  if (heads.rope == RL_NO_OP) return record;
  const rl_op& rope = plan.graph().op(heads.rope);
  const uint32_t pos = rope.inputs[operands::Rope::pos];
  dispatch.Reads(pos);
  record.pos = plan.addresses().AddressOf(pos);
  record.rates = RopeRates(plan, rope);
  record.half_rot = RotatedPairs(rope);
  return record;
}

}  // namespace

bool IsOneRow(const sdk::GraphView& graph, const Tuning& tuning, const rl_op& attention) {
  const rl_value& q = graph.value(attention.inputs[operands::Attention::q]);
  // One invocation handles four dimensions of a head.
  return graph.max_t() == 1 && MaxRows(graph, q) <= 1 &&
         Last(q) <= 4 * static_cast<int64_t>(ThreadsOf(tuning));
}

bool AttentionOfOneRow(PlanBuilder& plan) {
  const Tuning& tuning = plan.tuning();
  if (!tuning.special_kernels || !IsOneRow(plan.graph(), tuning, plan.op())) return false;
  using operands::Attention;
  const auto& a = plan.attrs<rl_attention_attrs>();
  const rl_value& q = plan.Input(Attention::q);
  const rl_value& state = plan.Input(Attention::k_state);
  const int64_t heads = q.dims[1].constant, dim = Last(q);
  const int64_t kv_heads = state.dims[2].constant, capacity = state.dims[1].constant;
  const int64_t group = GroupOf(heads / kv_heads, kMaxQueries);
  const uint32_t threads = ThreadsOf(tuning);
  const uint32_t split = std::min(std::bit_floor(tuning.subgroup_size), kSplit);
  const int64_t keys = threads / split;
  const int64_t tiles = (MaxOld(capacity, a.window) + keys) / keys;  // the fresh one as well
  const int64_t parts =
      std::clamp<int64_t>(tuning.few_groups / (heads / group), 1, std::min(tiles, kMaxParts));
  const auto word = [](int64_t n) { return static_cast<uint32_t>(n); };
  DispatchBuilder dispatch(plan, Shader::kAttentionRow,
                           {threads, word(heads), word(kv_heads), word(group), word(dim),
                            state.dtype, word(state.dims[0].constant), word(capacity),
                            word(a.window), a.mask == RL_MASK_CANVAS ? 1U : 0U, ConstantOf(a.scale),
                            split, word(std::min(threads / (dim / 4), keys))});
  for (const uint32_t i : {Attention::q_pos, Attention::q_slot, Attention::kv_pos,
                           Attention::kv_slot, Attention::past}) {
    dispatch.Read(plan.InputIndex(i));
  }
  HeadsRecord record[3] = {};
  const HeadTransform* queries = TransformOf(plan, Attention::q);
  record[Attention::q] =
      RecordOf(plan, dispatch,
               queries != nullptr ? *queries : HeadTransform{.x = plan.InputIndex(Attention::q)});
  for (const uint32_t i : {Attention::k_new, Attention::v_new}) {
    const uint32_t fresh = plan.InputIndex(i);
    if (const HeadTransform* transform = TransformOf(plan, i); transform != nullptr) {
      record[i] = RecordOf(plan, dispatch, *transform);
      dispatch.Write(fresh);
    } else {
      dispatch.Read(fresh);
    }
  }
  const auto rows = static_cast<uint64_t>(parts * heads);
  const std::vector<uint32_t> none(static_cast<size_t>(heads / group));
  dispatch.Read(plan.InputIndex(Attention::k_state))
      .Read(plan.InputIndex(Attention::v_state))
      .Write(plan.ResultIndex())
      .Pointer(plan.scratch().New(rows * static_cast<uint64_t>(dim + 4) * sizeof(float)).address)
      .Pointer(plan.scratch().Constant(std::as_bytes(std::span(none))))
      .Record(std::as_bytes(std::span(record)), {0, 8, 16, 24, 40, 48, 56, 64, 80, 88, 96, 104})
      .Rows(q.dims[0])
      .Emit(static_cast<uint64_t>(parts), static_cast<uint64_t>(heads / group));
  return true;
}

}  // namespace rullama::gpu
