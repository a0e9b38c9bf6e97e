// What the ops of a graph do with its constants, which a backend may want to know before it decides
// how to keep them.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "core/ir/graph.h"

namespace rullama {

// Names of the constants whose rows some op multiplies with activations.
using WeightNames = std::set<std::string, std::less<>>;
void AddWeightsInProducts(const Graph& graph, WeightNames& names);

}  // namespace rullama
