// Low-rank adapters: each product y = W x of an adapted weight becomes y + scale * B (A x). Several
// adapters of one weight add up, in the order given. Composites that hold an adapted weight are
// decomposed down to their products.
//
// A linear layer becomes adapted_linear and a geglu_linear adapted_geglu_linear where each of its
// weights has one adapter, of constants and with scale 1. Elsewhere the ops are products and sums:
// the sum has the name of the old product, whose own result becomes NAME/base.
//
// A and B are leaves of the graph: constants, which a WeightSource finds by name, or states, which
// a training step changes. A 3-D weight (experts) has A and B for each expert.
//
// Rows of a step may also choose: a pair then has A and B of several adapters of one rank, and
// inputs of the graph (core/ir/adapter_names.h) say which adapter each row has in each of the
// pair's places, and with which factor. A row gets y + factor * B[id] (A[id] x) for one place after
// another, whatever the other rows choose. The ops are row_adapted_linear and
// row_adapted_geglu_linear, and adapter_sum for more pairs of a weight. All pairs of a weight are
// of this kind or none.
//
// Thread safety: pure. Errors: adapt.shape (A, B and weight do not fit), adapt.op (an adapted
// weight is used by an op that is not a product), adapt.rows (a part of the rows of a weight with
// states, or one whose rows choose).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

struct LowRankPair {
  std::string weight;   // source of the adapted constants
  int64_t experts = 0;  // of a 3-D weight; 0: the weight is a matrix
  int64_t rank = 0;
  int64_t inputs = 0;                       // columns of the weight
  int64_t outputs = 0;                      // rows of the weight (of each expert)
  Lifetime lifetime = Lifetime::kConstant;  // or kState
  std::string a;                            // f32 [rank, inputs], or [experts, rank, inputs]
  std::string b;                            // f32 [outputs, rank], or [experts, outputs, rank]
  float scale = 1;
  // Adapters among which rows choose; 0: all rows have this one. Not for experts. Then A is f32
  // [choices, rank, inputs], B f32 [choices, outputs, rank], both constants.
  int64_t choices = 0;
  int64_t group = 0;   // of pairs whose rows choose alike
  int64_t places = 1;  // the most adapters of the group that a row has

  [[nodiscard]] TensorType AType() const;
  [[nodiscard]] TensorType BType() const;
};

// Pairs whose weight the graph does not use change nothing.
Result<Graph> AdaptProducts(const Graph& graph, std::span<const LowRankPair> pairs);

}  // namespace rullama
