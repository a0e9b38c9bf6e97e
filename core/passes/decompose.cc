#include "core/passes/decompose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string>

#include "core/base/check.h"
#include "core/passes/decompositions.h"
#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

using decompositions::Site;
// The operands are ids in the graph under construction, the attributes those of the op. Returns a
// value for each result.
using Decomposition = std::vector<ValueId> (*)(const Site&, std::span<const ValueId>,
                                               const OpAttrs&);

std::vector<ValueId> ToList(ValueId value) { return {value}; }
template <typename Results>
std::vector<ValueId> ToList(const Results& results) {
  const auto values =
      std::bit_cast<std::array<ValueId, sizeof(Results) / sizeof(ValueId)>>(results);
  return {values.begin(), values.end()};
}

// Null for an op that is not composite.
Decomposition FindDecomposition(OpKind kind) {
  switch (kind) {
#define RL_PRIMITIVE RL_KEEP
#define RL_EFFECT RL_KEEP
#define RL_COMPOSITE RL_DECOMPOSE
#define RL_KEEP(Name)   \
  case OpKind::k##Name: \
    return nullptr;
#define RL_DECOMPOSE(Name)                                                                 \
  case OpKind::k##Name:                                                                    \
    return [](const Site& site, std::span<const ValueId> operands, const OpAttrs& attrs) { \
      return ToList(decompositions::Name(site, ops::Read<ops::Name>(operands, attrs)));    \
    };
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) traits(Name)
#include <rullama/abi/ops.def>
#undef RL_KEEP
#undef RL_DECOMPOSE
  }
  return nullptr;
}

}  // namespace

bool HasDecomposition(OpKind kind) { return FindDecomposition(kind) != nullptr; }

Result<Graph> Decompose(const Graph& graph, const std::vector<bool>& refused) {
  RL_CHECK(refused.size() == graph.ops.size());
  GraphRewriter rewriter(graph);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const Decomposition decomposition = refused[i] ? FindDecomposition(op.kind) : nullptr;
    if (decomposition == nullptr) {
      rewriter.Keep(op);
      continue;
    }
    rewriter.SetDevice(op.device, op.epoch);
    const std::vector<ValueId> inputs = rewriter.MapAll(op.inputs);
    std::vector<std::string> names;
    names.reserve(op.results.size());
    for (const ValueId result : op.results) names.push_back(graph.value(result).name);
    const std::vector<ValueId> values =
        decomposition(Site{rewriter.builder(), names}, inputs, op.attrs);
    for (size_t j = 0; j < values.size(); ++j) rewriter.Bind(op.results[j], values[j]);
  }
  rewriter.KeepOutputs();
  return std::move(rewriter).Finish();
}

Result<Graph> DecomposeWhere(Graph graph,
                             const std::function<bool(const Graph& graph, const Op& op)>& where) {
  while (true) {
    std::vector<bool> refused;
    refused.reserve(graph.ops.size());
    for (const Op& op : graph.ops) refused.push_back(HasDecomposition(op.kind) && where(graph, op));
    if (std::ranges::find(refused, true) == refused.end()) return graph;
    RL_ASSIGN_OR_RETURN(graph, Decompose(graph, refused));
  }
}

Result<Graph> DecomposeAll(const Graph& graph) {
  return DecomposeWhere(graph, [](const Graph&, const Op&) { return true; });
}

}  // namespace rullama
