// The ways in which the ops of a graph use its constants. A backend may need them before it decides
// how to store a weight.
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
