// What every pass that rewrites a graph needs: a new graph that begins with the leaves of the old
// one, a map from old values to new ones, and the removal of what nobody needs. Names of values
// never change on the way. Not thread-safe.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "core/ir/graph.h"

namespace rullama {

// The graph without the ops, inputs, constants and states on which neither an output nor a state
// depends, its values renumbered densely in the old order. The input of the wanted rows is kept as
// long as the graph names one.
Graph Compact(const Graph& graph);

class GraphRewriter {
 public:
  // The new graph has the bounds and all leaves of `source`, which must outlive the rewriter.
  explicit GraphRewriter(const Graph& source);

  // Ops added here belong to the device of the last SetDevice.
  [[nodiscard]] GraphBuilder& builder() { return builder_; }
  void SetDevice(int device);

  // The new value of an old one; it must have one.
  [[nodiscard]] ValueId Map(ValueId source_value) const;
  [[nodiscard]] std::vector<ValueId> MapAll(const std::vector<ValueId>& source_values) const;
  void Bind(ValueId source_value, ValueId target_value);

  // Adds `op` of the source on these new operands, on its device; results have the names they had.
  // Types are inferred anew. The results are bound by Keep, not by Emit.
  std::vector<ValueId> Emit(const Op& op, std::vector<ValueId> inputs);
  void Keep(const Op& op);

  // Outputs and the input of the wanted rows as in the source.
  void KeepOutputs();

  // The new graph, compacted, or the first error of the builder.
  Result<Graph> Finish() &&;

 private:
  const Graph& source_;
  std::vector<ValueId> map_;  // by source value
  GraphBuilder builder_;
  std::vector<std::pair<ValueId, ValueId>> renamed_;        // (target, source it is named after)
  std::vector<std::pair<size_t, int>> devices_ = {{0, 0}};  // (first op, device) of each run
};

}  // namespace rullama
