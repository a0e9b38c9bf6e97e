// Factors of whole weights: each use of a weight W becomes that of scale * W. Formats whose blocks
// have scales of little range keep such a factor as a number of its own (NVFP4).
//
// The result of a matmul or gather_rows with the weight gets the name NAME/unscaled, and an affine
// op that multiplies it the name NAME. Composites that hold a scaled weight are decomposed down to
// their products.
//
// Thread safety: pure. Errors: scale.op (a scaled weight is used by another op).
#pragma once

#include <span>
#include <string>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

struct WeightScale {
  std::string weight;  // source of the scaled constants
  float scale = 1;

  friend bool operator==(const WeightScale&, const WeightScale&) = default;
};

// Scales whose weight the graph does not use change nothing.
Result<Graph> ScaleProducts(const Graph& graph, std::span<const WeightScale> scales);

}  // namespace rullama
