#include "core/diff/probes.h"

#include <algorithm>

namespace rullama {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

std::vector<std::string> ComparableValues(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops) {
    for (const ValueId result : op.results) {
      const Value& value = graph.value(result);
      const bool rows = value.type.rows() == Dim::T();
      if (value.lifetime == Lifetime::kTransient && rows && IsFloat(value.type.dtype)) {
        names.push_back(value.name);
      }
    }
  }
  return names;
}

Graph WithOutputs(Graph graph, const std::vector<std::string>& values) {
  for (const std::string& name : values) {
    if (std::ranges::find(graph.outputs, name, &Output::name) != graph.outputs.end()) continue;
    const ValueId id = graph.Find(name);
    if (id != kNoValue) graph.outputs.push_back({name, id, RowDemand::kAll});
  }
  return graph;
}

Graph WithoutStates(Graph graph) {
  std::erase_if(graph.ops, [](const Op& op) { return InfoOf(op.kind).trait == OpTrait::kEffect; });
  // Values are referred to by index: later versions of a state, which nothing reads any more, go,
  // and the others move up.
  std::vector<ValueId> moved(graph.values.size(), kNoValue);
  std::vector<Value> kept;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    Value& value = graph.values[id];
    if (value.lifetime == Lifetime::kState) {
      if (value.state != id) continue;
      value.lifetime = Lifetime::kInput;
      value.state = kNoValue;
    }
    moved[id] = static_cast<ValueId>(kept.size());
    kept.push_back(std::move(value));
  }
  graph.values = std::move(kept);
  const auto move = [&](ValueId id) { return id == kNoValue ? kNoValue : moved[id]; };
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    for (ValueId& id : graph.ops[i].inputs) id = move(id);
    for (ValueId& id : graph.ops[i].results) {
      id = move(id);
      graph.values[id].producer = i;
    }
  }
  for (Output& output : graph.outputs) output.value = move(output.value);
  graph.rows_input = move(graph.rows_input);
  return graph;
}

}  // namespace rullama
