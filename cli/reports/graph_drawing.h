// A graph as a picture: ops are boxes with the constants, inputs and states that they read; edges
// carry shapes. A block of the model ("blk.N...") is one box unless it is opened, and equal ones
// that follow one another are one box; edges to such a box are those of f32 values. One thread at a
// time (graph_layout.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/drawing/picture.h"
#include "core/ir/dot.h"
#include "core/ir/graph.h"

namespace rullama::cli {

// A graph, or the part of one that a device runs. Parts are joined by the names of their outputs
// and inputs.
struct DrawnPart {
  const Graph* graph = nullptr;
  size_t device = 0;  // chooses the colour, unless dispatches do
  // The dispatch of each op; empty: not known. Ops with the same number get the same colour.
  std::vector<size_t> dispatch_of_op = {};
};

struct DrawingOptions {
  std::string title = {};
  std::optional<BlockRange> opened = {};  // blocks whose ops are drawn
  std::optional<int64_t> only =
      {};  // this block alone, opened, with what it reads and who reads it
  std::vector<std::string> device_names = {};  // named in a legend if there are several
};

// Error graph.layout. Names may be any bytes.
Result<drawing::Picture> DrawGraph(const std::vector<DrawnPart>& parts,
                                   const DrawingOptions& options);

// The blocks that have ops, ascending, with the number of their ops.
struct BlockSize {
  int64_t block = 0;
  size_t ops = 0;
};
std::vector<BlockSize> BlocksOf(const std::vector<DrawnPart>& parts);

}  // namespace rullama::cli
