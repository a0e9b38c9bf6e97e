#include "core/passes/schedule.h"

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/passes/graph_rewriter.h"
#include "core/passes/wanted_rows.h"

namespace rullama {
namespace {

struct Dependencies {
  std::vector<std::vector<OpIndex>> successors;  // by op
  std::vector<uint32_t> predecessor_count;
};

Dependencies FindDependencies(const Graph& graph) {
  Dependencies deps;
  deps.successors.resize(graph.ops.size());
  deps.predecessor_count.assign(graph.ops.size(), 0);
  const auto add = [&](OpIndex before, OpIndex after) {
    deps.successors[before].push_back(after);
    ++deps.predecessor_count[after];
  };
  std::vector<std::vector<OpIndex>> readers(graph.values.size());
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    for (const ValueId input : graph.ops[i].inputs) {
      if (input == kNoValue) continue;
      readers[input].push_back(i);
      if (graph.value(input).producer != kNoOp) add(graph.value(input).producer, i);
    }
  }
  // An op that computes something again stays after the op before it: earlier, its result would
  // take memory for longer.
  for (OpIndex i = 1; i < graph.ops.size(); ++i) {
    if (graph.ops[i].epoch > 0) add(i - 1, i);
  }
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    for (size_t j = 0; j < WrittenOperands(InfoOf(op.kind)); ++j) {
      for (const OpIndex reader : readers[op.inputs[j]]) {
        if (reader != i) add(reader, i);
      }
    }
  }
  return deps;
}

struct Order {
  std::vector<OpIndex> ops;
  size_t segments = 0;
};

// List scheduling that begins on `device` and changes the device only when no op of the current one
// is ready. Among the ready ops, the first in the old order is scheduled first, but those that
// `comes_last` marks after the others.
Order OrderFrom(int device, const Graph& graph, const Dependencies& deps,
                const std::vector<bool>& comes_last) {
  std::vector<uint32_t> waiting_for = deps.predecessor_count;
  std::map<int, std::set<std::pair<bool, OpIndex>>> ready;  // by device
  const auto make_ready = [&](OpIndex i) { ready[graph.ops[i].device].emplace(comes_last[i], i); };
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    if (waiting_for[i] == 0) make_ready(i);
  }
  Order order;
  int current = device;
  while (!ready.empty()) {
    auto batch = ready.find(current);
    if (batch == ready.end()) batch = ready.begin();
    current = batch->first;
    const OpIndex next = batch->second.begin()->second;
    batch->second.erase(batch->second.begin());
    if (batch->second.empty()) ready.erase(batch);
    const bool changes =
        order.ops.empty() || graph.ops[order.ops.back()].device != graph.ops[next].device;
    order.segments += changes ? 1 : 0;
    order.ops.push_back(next);
    for (const OpIndex successor : deps.successors[next]) {
      if (--waiting_for[successor] == 0) make_ready(successor);
    }
  }
  return order;
}

}  // namespace

Result<Graph> Schedule(const Graph& graph, bool wanted_rows_last) {
  const Dependencies deps = FindDependencies(graph);
  std::set<int> devices;
  std::vector<bool> comes_last;
  for (const Op& op : graph.ops) {
    devices.insert(op.device);
    comes_last.push_back(wanted_rows_last && !NeedsAllRows(graph, op));
  }
  std::optional<Order> best;
  for (const int device : devices) {
    Order order = OrderFrom(device, graph, deps, comes_last);
    if (!best || order.segments < best->segments) best = std::move(order);
  }
  if (best && best->ops.size() != graph.ops.size()) {
    return MakeError(
        ErrorKind::kRuntime, "passes.cycle",
        "{} of {} ops of graph '{}' cannot be ordered: a reader of an old state version "
        "depends on the version that replaces it",
        graph.ops.size() - best->ops.size(), graph.ops.size(), graph.name);
  }
  GraphRewriter rewriter(graph);
  if (best) {
    for (const OpIndex i : best->ops) rewriter.Keep(graph.ops[i]);
  }
  rewriter.KeepOutputs();
  return std::move(rewriter).Finish();
}

}  // namespace rullama
