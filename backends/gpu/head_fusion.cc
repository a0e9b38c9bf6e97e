#include "backends/gpu/head_fusion.h"

#include <algorithm>

namespace rullama::gpu {
namespace {

enum Operand : uint32_t { kQ, kKNew, kVNew, kKState };

// Whether the memory of a value is still intact when a later op reads it.
bool Stays(const PlanBuilder& plan, uint32_t value) {
  const uint32_t producer = plan.ProducerOf(value);
  if (producer == RL_NO_OP) return true;
  if (!plan.ValuesKeepTheirPlaces() || !plan.IsPrivate(value)) return false;
  const rl_op& op = plan.graph().op(producer);
  return op.kind != RL_OP_reshape || Stays(plan, op.inputs[0]);
}

bool Matches(const PlanBuilder& plan, const rl_op& attention, uint32_t value) {
  const auto of = [&](Operand operand) -> const rl_value& {
    return plan.graph().value(attention.inputs[operand]);
  };
  const auto times = std::count(attention.inputs, attention.inputs + attention.input_count, value);
  if (times != 1) return false;
  if (attention.inputs[kQ] == value) return plan.OnlyReader(value) != RL_NO_OP;
  const rl_value& fresh = plan.graph().value(value);
  // A step that wants no query runs no attention, but may still need the keys and values.
  const auto& rows = of(kQ).dims[0];
  const bool same_rows = rows.constant == fresh.dims[0].constant && rows.t == fresh.dims[0].t &&
                         rows.r == fresh.dims[0].r;
  return same_rows && fresh.dtype == of(kKState).dtype &&
         (attention.inputs[kKNew] == value || attention.inputs[kVNew] == value);
}

}  // namespace

uint32_t OneRowThreads(const Tuning& tuning) {
  constexpr uint32_t kThreads = 256, kSoftwareThreads = 128;
  return tuning.Threads(tuning.software ? kSoftwareThreads : kThreads);
}

bool IsOneRow(const PlanBuilder& plan, const rl_op& attention) {
  const rl_value& q = plan.graph().value(attention.inputs[kQ]);
  // One invocation handles four dimensions of a head.
  return plan.graph().max_t() == 1 && plan.MostRows(q) <= 1 &&
         Last(q) <= 4 * static_cast<int64_t>(OneRowThreads(plan.tuning()));
}

bool LeaveHeads(PlanBuilder& plan, const Heads& heads) {
  if (!plan.tuning().subgroups || !plan.tuning().special_kernels || !Stays(plan, heads.x))
    return false;
  const uint32_t cast = plan.HalfCastOf(plan.ResultIndex());
  const uint32_t value = cast == RL_NO_OP ? plan.ResultIndex() : plan.graph().op(cast).results[0];
  const std::vector<uint32_t>& readers = plan.ReadersOf(value);
  if (readers.empty()) return false;
  const rl_op& first = plan.graph().op(std::ranges::min(readers));
  if (first.kind != RL_OP_attention || !IsOneRow(plan, first) || !Matches(plan, first, value)) {
    return false;
  }
  if (cast != RL_NO_OP) plan.Absorb(cast);
  plan.SetHeads(value, heads);
  return true;
}

}  // namespace rullama::gpu
