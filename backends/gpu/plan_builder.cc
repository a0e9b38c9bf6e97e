#include "backends/gpu/plan_builder.h"

#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/shape.h>
#include <rullama/sdk/training.h>

#include <algorithm>
#include <utility>

#include "backends/gpu/op_rows.h"

namespace rullama::gpu {

PlanBuilder::PlanBuilder(PlanDevice& device, const sdk::GraphView& graph, const Target& target,
                         DeviceAddress step)
    : graph_(graph),
      target_(target),
      step_{step, 0},
      steps_(StepsOf(graph, target)),
      learns_(sdk::Learns(graph)),
      loss_depends_on_experts_(gpu::LossDependsOnExperts(graph)),
      largest_(steps_.largest),
      uses_(graph),
      scratch_(device),
      addresses_(graph, steps_, scratch_),
      dispatches_(scratch_) {}

void PlanBuilder::Emit(const FusedNode& node) {
  const sdk::OpScope scope(node.op);
  node_ = &node;
  dispatches_.BeginOp(node.op);
  const OpRow* row = OpRows().Find(op().kind);
  if (row == nullptr || row->build == nullptr) {
    throw sdk::Error(RL_UNSUPPORTED, "op is not supported by this backend", node.op);
  }
  row->build(*this);
}

int64_t PlanBuilder::MaxRows(const rl_value& value) const {
  return sdk::DimAt(value.dims[0], steps_.largest.t, steps_.largest.r);
}

int64_t PlanBuilder::Max(const rl_dim& dim) const {
  return sdk::DimAt(dim, largest_.t, largest_.r);
}

int64_t PlanBuilder::Decisive(const rl_dim& dim) const {
  if (steps_.kind == StepKind::kRowByRow) return sdk::DimAt(dim, 1, 1);
  return std::min(Max(dim), sdk::DimAt(dim, steps_.decisive.t, steps_.decisive.r));
}

int64_t PlanBuilder::DecisiveRows(const rl_value& value) const { return Decisive(value.dims[0]); }

Scratch PlanBuilder::TakeAwaited(uint64_t words) {
  constexpr uint64_t kBlock = 16384;  // enough for a row of most models
  const uint64_t bytes = words * sizeof(uint32_t);
  if (awaited_.bytes < bytes) {
    awaited_ = scratch_.New(RoundUp(bytes, kBlock));
    const auto no_sum = uint32_t{kernels::MatVecDot::kNoSumYet};
    const auto source = std::as_bytes(std::span(&no_sum, 1));
    CopyColumns(*this, {.rows = {static_cast<int64_t>(awaited_.bytes / sizeof(no_sum)), 0, 0},
                        .columns = 1,
                        .from = {.scratch = {scratch_.Constant(source), source.size()}},
                        .from_columns = 0,
                        .to = {.scratch = awaited_},
                        .to_columns = 1});
  }
  const Scratch taken{awaited_.address, bytes};
  awaited_ = {awaited_.address + bytes, awaited_.bytes - bytes};
  return taken;
}

const DeviceWeight& PlanBuilder::WeightOf(const rl_value& value) {
  return *sdk::WeightOf<DeviceWeight>(value);
}

Range PlanBuilder::RangeOf(const Operand& operand) const {
  const Scratch& scratch = operand.scratch;
  if (scratch.bytes > 0) return {scratch.address, scratch.address + scratch.bytes};
  return addresses_.RangeOf(operand.value);
}

std::span<const uint32_t> PlanBuilder::ReadersOf(const Operand& x) const {
  if (x.scratch.bytes > 0) return {};
  return uses_.ReadersOf(x.value);
}

uint32_t PlanBuilder::LastProductOf(const Operand& x) const {
  uint32_t last = op_index();
  for (const uint32_t reader : ReadersOf(x)) {
    if (IsProduct(graph_.op(reader).kind)) last = std::max(last, reader);
  }
  return last;
}

LoweredGraph Lower(PlanDevice& device, const sdk::GraphView& graph, const Target& target,
                   DeviceAddress step) {
  PlanBuilder plan(device, graph, target, step);
  const FusedGraph fused = Fuse(graph, target);
  std::map<uint32_t, std::vector<uint32_t>> ops_of_node;
  for (const FusedNode& node : fused.nodes) {
    plan.Emit(node);
    std::vector<uint32_t> ops = node.fused;
    ops.push_back(node.op);
    std::ranges::sort(ops);
    ops_of_node[node.op] = std::move(ops);
  }
  LoweredGraph lowered = plan.Take();
  lowered.ops_of_node = std::move(ops_of_node);
  return lowered;
}

}  // namespace rullama::gpu
