// The graph of a model whose outputs are the activations that its matrices multiply, for measuring
// which columns matter.
//
// Composites that hold a matrix are decomposed, but not geglu_linear, whose matrices have one
// operand. The other outputs of the graph go, and with them what only they need. Tables whose rows
// are looked up are not multiplied.
//
// Thread safety: pure. Errors: observe.experts (the experts of a mixture have rows of their own).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// The activation of a matrix.
struct ProductInput {
  std::string weight;  // source of the matrix
  std::string x;       // an output of the graph: f32[rows, columns]
  int64_t columns = 0;

  friend bool operator==(const ProductInput&, const ProductInput&) = default;
};

struct ObservedProducts {
  Graph graph;
  std::vector<ProductInput> inputs;  // one for each matrix, in the order of the graph
};

Result<ObservedProducts> ObserveProducts(const Graph& graph);

}  // namespace rullama
