#include "core/passes/observe_products.h"

#include <rullama/sdk/operands.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "core/passes/decompose.h"
#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

bool IsMatrix(const Graph& graph, ValueId id) {
  return id != kNoValue && graph.value(id).lifetime == Lifetime::kConstant &&
         graph.type(id).rank >= 2;
}

bool HasMatrix(const Graph& graph, const Op& op) {
  return std::ranges::any_of(op.inputs, [&](ValueId id) { return IsMatrix(graph, id); });
}

// The matrices that an op multiplies its first operand with.
std::vector<ValueId> MatricesOf(const Graph& graph, const Op& op) {
  std::vector<ValueId> ids;
  if (op.kind == OpKind::kMatMul && op.As<rl_matmul_attrs>().transpose_weight != 0) {
    ids = {op.inputs[operands::MatMul::weight]};
  } else if (op.kind == OpKind::kGeGluLinear) {
    ids = {op.inputs[operands::GeGluLinear::gate_weight],
           op.inputs[operands::GeGluLinear::up_weight]};
  }
  std::erase_if(ids, [&](ValueId id) { return !IsMatrix(graph, id); });
  return ids;
}

}  // namespace

Result<ObservedProducts> ObserveProducts(const Graph& graph) {
  RL_ASSIGN_OR_RETURN(Graph products, DecomposeWhere(graph, [](const Graph& g, const Op& op) {
                        return op.kind != OpKind::kGeGluLinear && HasMatrix(g, op);
                      }));
  products.outputs.clear();
  ObservedProducts observed;
  std::set<std::string> weights, outputs;
  for (const Op& op : products.ops) {
    if (op.kind == OpKind::kGroupedMatMul) {
      return MakeError(ErrorKind::kUsage, "observe.experts",
                       "the model is a mixture of experts, expected one whose rows all meet the "
                       "same matrices");
    }
    for (const ValueId id : MatricesOf(products, op)) {
      const Value& x = products.value(op.inputs[0]);
      if (!weights.insert(products.value(id).source).second) continue;
      observed.inputs.push_back(
          {.weight = products.value(id).source, .x = x.name, .columns = x.type.last().constant});
      if (!outputs.insert(x.name).second) continue;
      products.outputs.push_back({x.name, op.inputs[0], RowDemand::kAll});
    }
  }
  observed.graph = Compact(products);
  return observed;
}

}  // namespace rullama
