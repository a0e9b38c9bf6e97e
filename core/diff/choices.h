// Choices among scores, such as a router's of experts. Where scores are close, two backends may
// choose differently and both be right; what follows then differs by whole experts. So they are
// compared on the same choice, and the choice by the scores it was made from. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ir/graph.h"

namespace rullama {

// A topk of rows of the step: names of its operand, f32[T, ..., n], and of its indices, i32[T, ...,
// k].
struct ScoreChoice {
  std::string scores;
  std::string indices;
  int64_t columns = 0;  // n
  int64_t count = 0;    // k
};
// In the order they are made.
std::vector<ScoreChoice> ChoicesOf(const Graph& graph);

// The graph with these values as inputs of their own names, which its ops read. What computes them
// stays, under names with ".computed" behind, as do outputs of it. Names the graph does not have
// are left out.
Graph WithGiven(Graph graph, const std::vector<std::string>& values);

struct ChoiceError {
  int64_t rows = 0;  // whose scores would choose otherwise, or in another order
  // How far the scores are from the choice made, in their root mean square: of each row the largest
  // amount by which a score comes before one that was chosen before it; over rows, the largest.
  double gap = 0;
};
// `indices`: rows of `count`, as numbers; `scores`: rows of `columns`. An index outside, or twice
// in a row, is an infinite gap.
ChoiceError CompareChoice(std::span<const float> indices, std::span<const float> scores,
                          const ScoreChoice& choice);

}  // namespace rullama
