// Places the nodes and edges of a drawing in layers, by GraphViz' library. One thread at a time:
// the library keeps global state.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace rullama::cli {

inline constexpr size_t kNoGroup = static_cast<size_t>(-1);

// Sizes and positions are in pixels; y grows downwards.
struct NodeBox {
  double width = 0;
  double height = 0;
  size_t group = kNoGroup;  // nodes of a group are drawn together
};

struct EdgeEnds {
  size_t from = 0;
  size_t to = 0;
  double label_width = 0;  // 0: no label
};

struct Position {
  double x = 0;
  double y = 0;
};

struct PlacedEdge {
  std::string curve;  // data of an SVG path, without the tip
  Position tip_begin, tip_end;
  Position label;  // its centre
};

struct PlacedGroup {
  Position corner;  // upper left
  double width = 0;
  double height = 0;
};

struct Layout {
  double width = 0;
  double height = 0;
  std::vector<Position> nodes;  // centres
  std::vector<PlacedEdge> edges;
  std::vector<PlacedGroup> groups;
};

// Error graph.layout (kRuntime) if GraphViz has no plugin for layered drawings or gives up.
Result<Layout> LayOut(const std::vector<NodeBox>& nodes, const std::vector<EdgeEnds>& edges,
                      size_t groups);

}  // namespace rullama::cli
