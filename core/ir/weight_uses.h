// The ways in which the ops of a graph use its constants. A backend may need them before it decides
// how to store a weight.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "core/ir/graph.h"

namespace rullama {

// Names of the constants whose rows some op multiplies with activations.
using WeightNames = std::set<std::string, std::less<>>;
void AddWeightsInProducts(const Graph& graph, WeightNames& names);

// The type of a constant among the operands of an op that nothing in this version decodes, so that
// only a foreign plugin may read it. Nothing if there is none.
[[nodiscard]] std::optional<DType> UndecodedConstant(const Graph& graph, const Op& op);

}  // namespace rullama
