#include "backends/gpu/graph_facts.h"

#include <rullama/sdk/shape.h>
#include <rullama/sdk/slots.h>
#include <rullama/sdk/training.h>

#include <algorithm>

namespace rullama::gpu {

int64_t RowElements(const rl_value& value) {
  int64_t elements = 1;
  for (uint32_t axis = 1; axis < value.rank; ++axis) elements *= value.dims[axis].constant;
  return elements;
}

int64_t MiddleElements(const rl_value& value) {
  int64_t elements = 1;
  for (uint32_t axis = 1; axis + 1 < value.rank; ++axis) elements *= value.dims[axis].constant;
  return elements;
}

bool RunsRowByRow(const sdk::GraphView& graph, const Target& target) {
  // With more slots, products that read the weights once for all rows take less. Steps of 12 rows
  // and more would too, but one row alone takes four times as long by them.
  constexpr int64_t kMaxSlots = 16;
  return target.prefers.row_kernels && sdk::DecodesBatch(graph) && sdk::SlotsOf(graph) <= kMaxSlots;
}

StepSize DecisiveStep(const sdk::GraphView& graph, const Target& target) {
  if (!sdk::DecodesBatch(graph)) return {graph.max_t(), graph.max_r()};
  const int64_t rows = RunsRowByRow(graph, target) ? 1 : sdk::SlotsOf(graph);
  return {rows, graph.max_r() > 0 ? rows : 0};
}

int64_t DecisiveRows(const sdk::GraphView& graph, const Target& target, const rl_value& value) {
  const StepSize step = DecisiveStep(graph, target);
  return sdk::DimAt(value.dims[0], step.t, step.r);
}

StepSize LargestStep(const sdk::GraphView& graph, const Target& target) {
  if (RunsRowByRow(graph, target)) return {graph.max_t(), graph.max_r()};
  const StepSize step = DecisiveStep(graph, target);
  return {std::max(step.t, graph.max_t()), std::max(step.r, graph.max_r())};
}

bool LossDependsOnExperts(const sdk::GraphView& graph) {
  if (!sdk::Learns(graph)) return false;
  for (uint32_t i = 0; i < graph.op_count(); ++i) {
    const uint32_t kind = graph.op(i).kind;
    if (kind == RL_OP_moe_ffn || kind == RL_OP_grouped_matmul) return true;
  }
  return false;
}

WeightShape ShapeOfConstant(const rl_value& value) {
  int64_t dims[RL_MAX_RANK];
  for (uint32_t i = 0; i < value.rank; ++i) dims[i] = value.dims[i].constant;
  return ShapeOf(TypeOf(value), {dims, value.rank});
}

bool IsProduct(uint32_t kind) {
  return kind == RL_OP_matmul || kind == RL_OP_geglu_linear || kind == RL_OP_grouped_matmul ||
         kind == RL_OP_moe_ffn;
}

bool IsPrivate(const rl_value& value) {
  return value.lifetime == RL_LIFETIME_TRANSIENT && value.observed == 0;
}

bool TransientsAreUnaliased(const sdk::GraphView& graph, const Target& target) {
  constexpr int64_t kFewRows = 8;
  return DecisiveStep(graph, target).t <= kFewRows;
}

ValueUses::ValueUses(const sdk::GraphView& graph)
    : producers_(graph.value_count(), RL_NO_OP), readers_(graph.value_count()) {
  for (uint32_t i = 0; i < graph.op_count(); ++i) {
    const rl_op& op = graph.op(i);
    for (uint32_t k = 0; k < op.input_count; ++k) {
      if (op.inputs[k] != RL_NO_VALUE) readers_[op.inputs[k]].push_back(i);
    }
    for (uint32_t k = 0; k < op.result_count; ++k) producers_[op.results[k]] = i;
  }
}

}  // namespace rullama::gpu
