// Graph transformations that expose intermediate values. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ir/graph.h"

namespace rullama {

// The floating-point values that ops compute with one row for each token, in the order of their
// computation. Backends are compared on these.
std::vector<std::string> ComparableValues(const Graph& graph);

// The graph with these values as additional outputs of the same names, for all rows. Existing
// outputs stay as they are.
Graph WithOutputs(Graph graph, const std::vector<std::string>& values);

// The graph without its states: each state becomes an input of the same name and type, and the ops
// that append to it are removed. This suits one step from an empty cache, which reads no old row;
// ops that share a cache may then run on different devices.
Graph WithoutStates(Graph graph);

}  // namespace rullama
