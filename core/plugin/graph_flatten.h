// A Graph as the arrays of rl_graph.
//
// Ownership: FlatGraph holds the arrays; names, operand lists and attributes stay in the Graph,
// which has to outlive it unchanged. Immutable; may be shared by threads.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <span>
#include <vector>

#include "core/ir/graph.h"
#include "core/plugin/device.h"

namespace rullama {

class FlatGraph {
 public:
  // Flattens a graph without storage, for query_ops: lifetimes are those of the graph, weights and
  // buffers are null.
  explicit FlatGraph(const Graph& graph);
  // Flattens a graph with storage, parallel to graph.values, for plan_compile.
  FlatGraph(const Graph& graph, std::span<const Storage> storage, RecordTimes record_times);
  FlatGraph(const FlatGraph&) = delete;
  FlatGraph& operator=(const FlatGraph&) = delete;

  [[nodiscard]] const rl_graph* view() const { return &view_; }

 private:
  std::vector<rl_value> values_;
  std::vector<rl_op> ops_;
  rl_graph view_{};
};

}  // namespace rullama
