// Changes to a graph for looking into it. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ir/graph.h"

namespace rullama {

// Values that ops compute and that hold floating-point numbers, one row for each token: what
// backends can be compared on. In the order they are computed.
std::vector<std::string> ComparableValues(const Graph& graph);

// The graph with these values as outputs of their own names, for all rows. Names that are already
// outputs stay as they are.
Graph WithOutputs(Graph graph, const std::vector<std::string>& values);

// The graph without its states: each becomes an input of the same name and type, and what appended
// to it is gone. For one step from an empty cache, which reads no old row, so that ops which share
// a cache may run on different devices.
Graph WithoutStates(Graph graph);

}  // namespace rullama
