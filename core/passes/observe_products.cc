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
  } else if (op.kind == OpKind::kGroupedMatMul && op.As<rl_grouped_matmul_attrs>().as_stored == 0) {
    ids = {op.inputs[operands::GroupedMatMul::weight]};
  } else if (op.kind == OpKind::kGeGluLinear) {
    ids = {op.inputs[operands::GeGluLinear::gate_weight],
           op.inputs[operands::GeGluLinear::up_weight]};
  }
  std::erase_if(ids, [&](ValueId id) { return !IsMatrix(graph, id); });
  return ids;
}

// Outputs, each once.
class Outputs {
 public:
  explicit Outputs(Graph& graph) : graph_(graph) { graph_.outputs.clear(); }

  const std::string& Add(ValueId id) {
    const std::string& name = graph_.value(id).name;
    if (names_.insert(name).second) graph_.outputs.push_back({name, id, RowDemand::kAll});
    return name;
  }

 private:
  Graph& graph_;
  std::set<std::string> names_;
};

ProductInput InputOf(const Graph& graph, const Op& op, ValueId matrix, Outputs& outputs) {
  const ValueId x = op.inputs[0];
  ProductInput input{.weight = graph.value(matrix).source,
                     .x = outputs.Add(x),
                     .columns = graph.type(x).last().constant};
  if (op.kind != OpKind::kGroupedMatMul) return input;
  const ValueId experts = op.inputs[operands::GroupedMatMul::experts];
  input.experts = outputs.Add(experts);
  input.expert_count = graph.type(matrix).dim(0).constant;
  input.chosen = graph.type(experts).last().constant;
  input.x_of_expert = graph.type(x).rank == 3;
  return input;
}

}  // namespace

Result<ObservedProducts> ObserveProducts(const Graph& graph) {
  RL_ASSIGN_OR_RETURN(Graph products, DecomposeWhere(graph, [](const Graph& g, const Op& op) {
                        return op.kind != OpKind::kGeGluLinear && HasMatrix(g, op);
                      }));
  ObservedProducts observed;
  std::set<std::string> weights;
  Outputs outputs(products);
  for (const Op& op : products.ops) {
    for (const ValueId id : MatricesOf(products, op)) {
      if (!weights.insert(products.value(id).source).second) continue;
      observed.inputs.push_back(InputOf(products, op, id, outputs));
    }
  }
  observed.graph = Compact(products);
  return observed;
}

}  // namespace rullama
