// The base of passes that rewrite a graph: a new graph that begins with the leaves of the old one,
// a map from old values to new ones, and dead code elimination. Names of values never change. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "core/ir/graph.h"

namespace rullama {

// Removes the ops, inputs, constants and states on which no output and no state depends, and
// renumbers the values densely in the old order. The input of the wanted rows, if any, is kept.
Graph Compact(const Graph& graph);

class GraphRewriter {
 public:
  // The new graph has the bounds and all leaves of `source`, which must outlive the rewriter.
  explicit GraphRewriter(const Graph& source);

  // Ops that are added to it belong to the device and the epoch of the last SetDevice().
  [[nodiscard]] GraphBuilder& builder() { return builder_; }
  void SetDevice(int device, int epoch = 0);

  // The new value of an old value, which must have been mapped.
  [[nodiscard]] ValueId Map(ValueId source_value) const;
  [[nodiscard]] std::vector<ValueId> MapAll(const std::vector<ValueId>& source_values) const;
  void Bind(ValueId source_value, ValueId target_value);

  // Adds `op` of the source with these new operands on its device, in its epoch. Results keep their
  // names and types are inferred again. Keep() maps the results, Emit() does not.
  std::vector<ValueId> Emit(const Op& op, std::vector<ValueId> inputs);
  void Keep(const Op& op);

  // Copies the outputs and the input of the wanted rows from the source.
  void KeepOutputs();

  // The new graph, compacted, or the first error of the builder.
  Result<Graph> Finish() &&;

 private:
  const Graph& source_;
  std::vector<ValueId> map_;  // by source value
  GraphBuilder builder_;
  std::vector<std::pair<ValueId, ValueId>> renamed_;  // (target, source it is named after)
  struct Run {                                        // of ops with one device and epoch
    size_t first_op;
    int device;
    int epoch;
  };
  std::vector<Run> runs_ = {{0, 0, 0}};
};

}  // namespace rullama
