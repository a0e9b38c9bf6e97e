#include "core/ir/weight_uses.h"

#include <cstddef>
#include <vector>

namespace rullama {
namespace {

std::vector<size_t> MultipliedOperands(const Op& op) {
  switch (op.kind) {
    case OpKind::kMatMul:
      if (op.As<rl_matmul_attrs>().transpose_weight == 0) return {};
      return {1};
    case OpKind::kGroupedMatMul:
      return {1};
    case OpKind::kGeGluLinear:
      return {1, 2};
    case OpKind::kPleInject:
      return {2, 3};
    case OpKind::kMoeFfn:
      return {3, 4, 5};
    default:
      return {};
  }
}

}  // namespace

void AddWeightsInProducts(const Graph& graph, WeightNames& names) {
  for (const Op& op : graph.ops) {
    for (const size_t operand : MultipliedOperands(op)) {
      const ValueId id = op.inputs[operand];
      if (id == kNoValue || graph.value(id).lifetime != Lifetime::kConstant) continue;
      names.insert(graph.value(id).name);
    }
  }
}

}  // namespace rullama
