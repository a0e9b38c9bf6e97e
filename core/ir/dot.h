// A graph as a GraphViz drawing, for `rullama graph --dot`. Pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/ir/graph.h"

namespace rullama {

// Blocks: the ops whose result is named "blk.N..." are layer N of a model.
struct BlockRange {
  int64_t first = 0;
  int64_t last = 0;  // included
};

inline constexpr int64_t kNoBlock = -1;
// N of a name "blk.N" or "blk.N..."; kNoBlock for others.
int64_t BlockOfName(std::string_view name);

// Each block is a cluster. Inputs that blocks read are drawn once in each; edges of an op that
// reads the same node more than once carry the names of its operands. With `blocks`, only the ops
// of these are drawn; values from elsewhere are dashed.
std::string PrintDot(const Graph& graph, const std::optional<BlockRange>& blocks = std::nullopt);

}  // namespace rullama
