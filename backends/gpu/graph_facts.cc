#include "backends/gpu/graph_facts.h"

#include <rullama/sdk/training.h>

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
