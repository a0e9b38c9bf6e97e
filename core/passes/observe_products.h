// The graph of a model whose outputs are the activations that its matrices multiply, for measuring
// which columns matter.
//
// Composites that hold a matrix are decomposed, but not geglu_linear, whose matrices have one
// operand. The other outputs of the graph go, and with them what only they need. Tables whose rows
// are looked up are not multiplied. For the matrices of a mixture of experts, the ids of the
// experts that a row chooses are an output too.
//
// Thread safety: pure. Errors: those of decomposing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// The activation of a matrix, or of the matrices of all experts.
struct ProductInput {
  std::string weight;  // source of the matrix
  std::string x;       // an output of the graph: f32[rows, columns], or f32[rows, chosen, columns]
  int64_t columns = 0;
  std::string experts = {};  // an output i32[rows, chosen]; empty for a matrix of all rows
  int64_t expert_count = 1;  // matrices
  int64_t chosen = 1;        // experts of a row
  bool x_of_expert = false;  // x has a row for each chosen expert

  friend bool operator==(const ProductInput&, const ProductInput&) = default;
};

struct ObservedProducts {
  Graph graph;
  std::vector<ProductInput> inputs;  // one for each matrix, in the order of the graph
};

Result<ObservedProducts> ObserveProducts(const Graph& graph);

}  // namespace rullama
