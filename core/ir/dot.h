// A graph as a GraphViz drawing, for `rullama graph --dot`. Pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/ir/graph.h"

namespace rullama {

// Blocks: the ops whose result is named "blk.N..." are layer N of a model.
struct BlockRange {
  int64_t first = 0;
  int64_t last = 0;  // included
};

// Each block is a cluster. Inputs that blocks read are drawn once in each; edges of an op that
// reads the same node more than once carry the names of its operands. With `blocks`, only the ops
// of these are drawn; values from elsewhere are dashed.
std::string PrintDot(const Graph& graph, const std::optional<BlockRange>& blocks = std::nullopt);

}  // namespace rullama
