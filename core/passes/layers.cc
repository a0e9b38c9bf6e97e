#include "core/passes/layers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

namespace rullama {
namespace {

constexpr size_t kNoLayer = std::numeric_limits<size_t>::max();

class LayerFinder {
 public:
  LayerFinder(const Graph& graph, std::span<const std::string> outputs)
      : graph_(graph),
        outputs_(outputs),
        output_of_(graph.values.size(), kNoLayer),
        layers_(graph.ops.size(), 0),
        follows_layer_(graph.ops.size(), false) {}

  Result<std::vector<size_t>> Run() && {
    RL_RETURN_IF_ERROR(FindOutputs());
    FollowDependencies();
    JoinStates();
    MoveToReaders();
    return std::move(layers_);
  }

 private:
  // Fills output_of_ with the index of each value in `outputs_`.
  Status FindOutputs() {
    std::map<std::string_view, ValueId> values;
    for (ValueId id = 0; id < graph_.values.size(); ++id) values.emplace(graph_.value(id).name, id);
    size_t found = 0;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto value = values.find(outputs_[i]);
      if (value == values.end()) continue;
      if (found != i) {
        return MakeError(ErrorKind::kRuntime, "passes.layers",
                         "graph '{}' has the output '{}' of a layer, but not '{}' before it",
                         graph_.name, outputs_[i], outputs_[found]);
      }
      output_of_[value->second] = i;
      ++found;
    }
    return OkStatus();
  }

  void FollowDependencies() {
    for (OpIndex i = 0; i < graph_.ops.size(); ++i) {
      for (const ValueId input : graph_.ops[i].inputs) {
        if (input == kNoValue) continue;
        if (output_of_[input] != kNoLayer) {
          layers_[i] = std::max(layers_[i], output_of_[input]);
          follows_layer_[i] = true;
        }
        const OpIndex producer = graph_.value(input).producer;
        if (producer == kNoOp) continue;
        layers_[i] = std::max(layers_[i], layers_[producer]);
        follows_layer_[i] = follows_layer_[i] || follows_layer_[producer];
      }
    }
  }

  // An op such as the one that appends to the history of tokens depends on no layer, but uses a
  // state that the ops of one layer read.
  void JoinStates() {
    std::map<ValueId, size_t> last_user;  // by first version of the state
    const auto for_each_state = [this](OpIndex i, const auto& visit) {
      for (const ValueId input : graph_.ops[i].inputs) {
        if (input == kNoValue || graph_.value(input).lifetime != Lifetime::kState) continue;
        visit(graph_.value(input).state);
      }
    };
    for (OpIndex i = 0; i < graph_.ops.size(); ++i) {
      for_each_state(i, [&](ValueId state) {
        size_t& last = last_user[state];
        last = std::max(last, layers_[i]);
      });
    }
    for (OpIndex i = 0; i < graph_.ops.size(); ++i) {
      if (follows_layer_[i]) continue;
      for_each_state(i,
                     [&](ValueId state) { layers_[i] = std::max(layers_[i], last_user[state]); });
    }
  }

  // Values that only later layers read, such as the part of a per-layer embedding that belongs to
  // one of them, are computed there. Outputs of layers and of the graph stay, as do ops with
  // effects.
  void MoveToReaders() {
    std::vector<size_t> first_reader(graph_.values.size(), kNoLayer);
    std::vector<bool> stays(graph_.values.size(), false);
    for (const Output& output : graph_.outputs) stays[output.value] = true;
    for (OpIndex i = graph_.ops.size(); i-- > 0;) {
      const Op& op = graph_.ops[i];
      size_t reader = kNoLayer;
      bool moves = WrittenOperands(InfoOf(op.kind)) == 0;
      for (const ValueId result : op.results) {
        reader = std::min(reader, first_reader[result]);
        moves = moves && !stays[result] && output_of_[result] == kNoLayer;
      }
      if (moves && reader != kNoLayer) layers_[i] = std::max(layers_[i], reader);
      for (const ValueId input : op.inputs) {
        if (input != kNoValue) first_reader[input] = std::min(first_reader[input], layers_[i]);
      }
    }
  }

  const Graph& graph_;
  std::span<const std::string> outputs_;
  std::vector<size_t> output_of_;  // by value; kNoLayer if it is not an output of a layer
  std::vector<size_t> layers_;     // by op
  std::vector<bool> follows_layer_;
};

}  // namespace

Result<std::vector<size_t>> LayersOf(const Graph& graph, std::span<const std::string> outputs) {
  return LayerFinder(graph, outputs).Run();
}

std::vector<bool> PossibleCuts(const Graph& graph, std::span<const size_t> layer_of_op,
                               size_t layers) {
  struct Use {
    size_t first;
    size_t last;
  };
  std::map<ValueId, Use> uses;  // by first version of the state
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    for (const ValueId input : graph.ops[i].inputs) {
      if (input == kNoValue || graph.value(input).lifetime != Lifetime::kState) continue;
      const size_t layer = layer_of_op[i];
      Use& use = uses.try_emplace(graph.value(input).state, Use{layer, layer}).first->second;
      use = {std::min(use.first, layer), std::max(use.last, layer)};
    }
  }
  std::vector<bool> possible(layers, true);
  if (layers > 0) possible[0] = false;
  for (const auto& [state, use] : uses) {
    for (size_t layer = use.first + 1; layer <= use.last && layer < layers; ++layer) {
      possible[layer] = false;
    }
  }
  return possible;
}

}  // namespace rullama
