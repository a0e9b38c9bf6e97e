#include "backends/gpu/plan_builder.h"

#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/shape.h>

#include "backends/gpu/op_rows.h"

namespace rullama::gpu {

PlanBuilder::PlanBuilder(PlanDevice& device, const sdk::GraphView& graph, const Tuning& tuning,
                         DeviceAddress step)
    : device_(device),
      graph_(graph),
      tuning_(tuning),
      step_{step, 0},
      largest_(LargestStep(graph)),
      scratch_(device),
      addresses_(graph, scratch_),
      dispatches_(scratch_) {}

void PlanBuilder::Emit(const FusedNode& node) {
  const sdk::OpScope scope(node.op);
  node_ = &node;
  const OpRow* row = OpRows().Find(op().kind);
  if (row == nullptr || row->build == nullptr) {
    throw sdk::Error(RL_UNSUPPORTED, "op is not supported by this backend", node.op);
  }
  row->build(*this);
}

int64_t PlanBuilder::Max(const rl_dim& dim) const {
  return sdk::DimAt(dim, largest_.t, largest_.r);
}

const DeviceWeight& PlanBuilder::WeightOf(const rl_value& value) {
  return *sdk::WeightOf<DeviceWeight>(value);
}

Range PlanBuilder::RangeOf(const Operand& operand) const {
  const Scratch& scratch = operand.scratch;
  if (scratch.bytes > 0) return {scratch.address, scratch.address + scratch.bytes};
  return addresses_.RangeOf(operand.value);
}

LoweredGraph Lower(PlanDevice& device, const sdk::GraphView& graph, const Tuning& tuning,
                   DeviceAddress step) {
  PlanBuilder plan(device, graph, tuning, step);
  const FusedGraph fused = Fuse(graph, tuning);
  for (const FusedNode& node : fused.nodes) plan.Emit(node);
  return plan.Take();
}

}  // namespace rullama::gpu
