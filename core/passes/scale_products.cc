#include "core/passes/scale_products.h"

#include <rullama/sdk/operands.h>

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/passes/decompose.h"
#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

using Scales = std::map<std::string_view, float>;

// The scale of the constant `id`, or null.
const float* ScaleOf(const Graph& graph, const Scales& scales, ValueId id) {
  if (id == kNoValue || graph.value(id).lifetime != Lifetime::kConstant) return nullptr;
  const auto found = scales.find(graph.value(id).source);
  return found == scales.end() ? nullptr : &found->second;
}

// The scale of a weight that the op uses, or null.
const float* ScaleIn(const Graph& graph, const Scales& scales, const Op& op) {
  for (const ValueId id : op.inputs) {
    if (const float* scale = ScaleOf(graph, scales, id)) return scale;
  }
  return nullptr;
}

// The operand that an op is linear in, if it is one of those whose results can be scaled.
ValueId WeightOf(const Op& op) {
  switch (op.kind) {
    case OpKind::kMatMul:
      return op.inputs[operands::MatMul::weight];
    case OpKind::kGatherRows:
      return op.inputs[operands::GatherRows::table];
    default:
      return kNoValue;
  }
}

Result<Graph> ScaleResults(const Graph& graph, const Scales& scales) {
  GraphRewriter rewriter(graph);
  for (const Op& op : graph.ops) {
    const float* scale = ScaleIn(graph, scales, op);
    if (scale == nullptr) {
      rewriter.Keep(op);
      continue;
    }
    const std::string& name = graph.value(op.results[0]).name;
    if (ScaleOf(graph, scales, WeightOf(op)) == nullptr) {
      return MakeError(ErrorKind::kRuntime, "scale.op",
                       "op {} '{}' uses a weight with a factor, expected matmul or gather_rows",
                       InfoOf(op.kind).name, name);
    }
    rewriter.SetDevice(op.device, op.epoch);
    GraphBuilder& b = rewriter.builder();
    const ValueId unscaled =
        b.Add(op.kind, rewriter.MapAll(op.inputs), op.attrs, name + "/unscaled")[0];
    rewriter.Bind(op.results[0],
                  b.Add(ops::Affine{.x = unscaled, .scale = *scale, .bias = 0}, name));
  }
  rewriter.KeepOutputs();
  return std::move(rewriter).Finish();
}

}  // namespace

Result<Graph> ScaleProducts(const Graph& graph, std::span<const WeightScale> scales) {
  if (scales.empty()) return graph;
  Scales by_weight;
  for (const WeightScale& scale : scales) by_weight[scale.weight] = scale.scale;
  RL_ASSIGN_OR_RETURN(const Graph products,
                      DecomposeWhere(graph, [&](const Graph& g, const Op& op) {
                        return ScaleIn(g, by_weight, op) != nullptr;
                      }));
  return ScaleResults(products, by_weight);
}

}  // namespace rullama
