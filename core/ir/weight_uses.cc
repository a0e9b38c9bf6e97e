#include "core/ir/weight_uses.h"

#include <rullama/sdk/dequantize.h>

#include <cstddef>

namespace rullama {
namespace {

// A matrix that is multiplied as stored has its columns, not its rows, multiplied.
bool MultipliesRows(const Op& op, size_t operand) {
  if (InfoOf(op.kind).operands[operand].role != OperandRole::kWeight) return false;
  return op.kind != OpKind::kMatMul || op.As<rl_matmul_attrs>().transpose_weight != 0;
}

}  // namespace

std::optional<DType> UndecodedConstant(const Graph& graph, const Op& op) {
  for (const ValueId id : op.inputs) {
    if (id == kNoValue || graph.value(id).lifetime != Lifetime::kConstant) continue;
    const DType dtype = graph.type(id).dtype;
    if (sdk::FindDequantizer(dtype) == nullptr) return dtype;
  }
  return std::nullopt;
}

void AddWeightsInProducts(const Graph& graph, WeightNames& names) {
  for (const Op& op : graph.ops) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId id = op.inputs[i];
      if (id == kNoValue || !MultipliesRows(op, i)) continue;
      if (graph.value(id).lifetime == Lifetime::kConstant) names.insert(graph.value(id).name);
    }
  }
}

}  // namespace rullama
