#include "core/passes/graph_rewriter.h"

#include "core/base/check.h"

namespace rullama {
namespace {

Graph LeavesOf(const Graph& source, std::vector<ValueId>& map) {
  Graph target;
  target.name = source.name;
  target.max_t = source.max_t;
  target.max_r = source.max_r;
  map.assign(source.values.size(), kNoValue);
  for (ValueId id = 0; id < source.values.size(); ++id) {
    if (source.values[id].producer != kNoOp) continue;
    map[id] = static_cast<ValueId>(target.values.size());
    target.values.push_back(source.values[id]);
    if (source.values[id].lifetime == Lifetime::kState) target.values.back().state = map[id];
  }
  return target;
}

// Marks the ops on which an output or a state depends.
std::vector<bool> LiveOps(const Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Output& output : graph.outputs) needed[output.value] = true;
  std::vector<bool> live(graph.ops.size(), false);
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const Op& op = graph.ops[i];
    bool is_live = InfoOf(op.kind).trait == OpTrait::kEffect;
    for (const ValueId result : op.results) is_live = is_live || needed[result];
    if (!is_live) continue;
    live[i] = true;
    for (const ValueId input : op.inputs) {
      if (input != kNoValue) needed[input] = true;
    }
  }
  return live;
}

}  // namespace

Graph Compact(const Graph& graph) {
  const std::vector<bool> live = LiveOps(graph);
  std::vector<bool> used(graph.values.size(), false);
  std::vector<OpIndex> op_map(graph.ops.size(), kNoOp);
  OpIndex op_count = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live[i]) continue;
    op_map[i] = op_count++;
    for (const ValueId result : graph.ops[i].results) used[result] = true;
    for (const ValueId input : graph.ops[i].inputs) {
      if (input != kNoValue) used[input] = true;
    }
  }
  for (const Output& output : graph.outputs) used[output.value] = true;
  if (graph.rows_input != kNoValue) used[graph.rows_input] = true;

  std::vector<ValueId> map(graph.values.size(), kNoValue);
  Graph target;
  target.name = graph.name;
  target.max_t = graph.max_t;
  target.max_r = graph.max_r;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    // Keep the first version of a state even if only a later version is read: it names the storage.
    const Value& value = graph.values[id];
    if (used[id] && value.state != kNoValue) used[value.state] = true;
  }
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    if (!used[id]) continue;
    map[id] = static_cast<ValueId>(target.values.size());
    target.values.push_back(graph.values[id]);
  }
  for (Value& value : target.values) {
    if (value.producer != kNoOp) value.producer = op_map[value.producer];
    if (value.state != kNoValue) value.state = map[value.state];
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live[i]) continue;
    target.ops.push_back(graph.ops[i]);
    for (ValueId& input : target.ops.back().inputs) {
      if (input != kNoValue) input = map[input];
    }
    for (ValueId& result : target.ops.back().results) result = map[result];
  }
  for (const Output& output : graph.outputs) {
    target.outputs.push_back({output.name, map[output.value], output.demand});
  }
  if (graph.rows_input != kNoValue) target.rows_input = map[graph.rows_input];
  return target;
}

GraphRewriter::GraphRewriter(const Graph& source)
    : source_(source), builder_(LeavesOf(source, map_)) {}

void GraphRewriter::SetDevice(int device, int epoch) {
  runs_.push_back({builder_.graph().ops.size(), device, epoch});
}

ValueId GraphRewriter::Map(ValueId source_value) const {
  if (source_value == kNoValue) return kNoValue;
  RL_CHECK(source_value < map_.size());
  return map_[source_value];
}

std::vector<ValueId> GraphRewriter::MapAll(const std::vector<ValueId>& source_values) const {
  std::vector<ValueId> mapped;
  mapped.reserve(source_values.size());
  for (const ValueId value : source_values) mapped.push_back(Map(value));
  return mapped;
}

void GraphRewriter::Bind(ValueId source_value, ValueId target_value) {
  map_[source_value] = target_value;
}

std::vector<ValueId> GraphRewriter::Emit(const Op& op, std::vector<ValueId> inputs) {
  SetDevice(op.device, op.epoch);
  std::vector<ValueId> results =
      builder_.Add(op.kind, std::move(inputs), op.attrs, source_.value(op.results[0]).name);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != kNoValue) renamed_.emplace_back(results[i], op.results[i]);
  }
  return results;
}

void GraphRewriter::Keep(const Op& op) {
  const std::vector<ValueId> results = Emit(op, MapAll(op.inputs));
  for (size_t i = 0; i < results.size(); ++i) Bind(op.results[i], results[i]);
}

void GraphRewriter::KeepOutputs() {
  for (const Output& output : source_.outputs) {
    builder_.Output(output.name, Map(output.value), output.demand);
  }
  builder_.WantedRows(Map(source_.rows_input));
}

Result<Graph> GraphRewriter::Finish() && {
  RL_ASSIGN_OR_RETURN(Graph graph, std::move(builder_).Finish());
  for (const auto& [target, named_after] : renamed_) {
    graph.values[target].name = source_.value(named_after).name;
  }
  size_t run = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    while (run + 1 < runs_.size() && runs_[run + 1].first_op <= i) ++run;
    graph.ops[i].device = runs_[run].device;
    graph.ops[i].epoch = runs_[run].epoch;
  }
  return Compact(graph);
}

}  // namespace rullama
