#include "backends/gpu/graph_facts.h"

#include <rullama/sdk/shape.h>
#include <rullama/sdk/slots.h>

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

StepSize LargestStep(const sdk::GraphView& graph) {
  if (!sdk::DecodesBatch(graph)) return {graph.max_t(), graph.max_r()};
  const int64_t slots = sdk::SlotsOf(graph);
  return {slots, graph.max_r() > 0 ? slots : 0};
}

int64_t MaxRows(const sdk::GraphView& graph, const rl_value& value) {
  const StepSize step = LargestStep(graph);
  return sdk::DimAt(value.dims[0], step.t, step.r);
}

WeightShape ShapeOfConstant(const rl_value& value) {
  int64_t dims[RL_MAX_RANK];
  for (uint32_t i = 0; i < value.rank; ++i) dims[i] = value.dims[i].constant;
  return ShapeOf(TypeOf(value), {dims, value.rank});
}

bool IsPrivate(const rl_value& value) {
  return value.lifetime == RL_LIFETIME_TRANSIENT && value.observed == 0;
}

bool TransientsAreUnaliased(const sdk::GraphView& graph) {
  constexpr int64_t kFewRows = 8;
  return LargestStep(graph).t <= kFewRows;
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
