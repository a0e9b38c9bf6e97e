#include "core/passes/decompose.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/passes/decompositions.h"
#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

using Decomposition = ValueId (*)(const decompositions::Site&);

Decomposition FindDecomposition(OpKind kind) {
  switch (kind) {
    case OpKind::kSoftmax:
      return decompositions::Softmax;
    case OpKind::kRmsNorm:
      return decompositions::RmsNorm;
    case OpKind::kSoftcap:
      return decompositions::Softcap;
    case OpKind::kGeGlu:
      return decompositions::GeGlu;
    case OpKind::kGeGluLinear:
      return decompositions::GeGluLinear;
    case OpKind::kResidualNorm:
      return decompositions::ResidualNorm;
    case OpKind::kAttention:
      return decompositions::Attention;
    case OpKind::kPleInject:
      return decompositions::PleInject;
    case OpKind::kTopPMask:
      return decompositions::TopPMask;
    case OpKind::kMinPMask:
      return decompositions::MinPMask;
    case OpKind::kEntropy:
      return decompositions::Entropy;
    case OpKind::kSoftEmbed:
      return decompositions::SoftEmbed;
    case OpKind::kMoeFfn:
      return decompositions::MoeFfn;
    default:
      return nullptr;
  }
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
    rewriter.SetDevice(op.device);
    const std::vector<ValueId> inputs = rewriter.MapAll(op.inputs);
    const std::string& name = graph.value(op.results[0]).name;
    rewriter.Bind(op.results[0], decomposition({rewriter.builder(), op, inputs, name}));
  }
  rewriter.KeepOutputs();
  return std::move(rewriter).Finish();
}

Result<Graph> DecomposeAll(const Graph& graph) {
  Graph current = graph;
  while (std::ranges::any_of(current.ops, [](const Op& op) { return HasDecomposition(op.kind); })) {
    RL_ASSIGN_OR_RETURN(current, Decompose(current, std::vector<bool>(current.ops.size(), true)));
  }
  return current;
}

}  // namespace rullama
