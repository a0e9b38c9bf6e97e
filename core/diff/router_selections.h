// Selections of the largest scores, such as a router's selection of experts. Where scores are
// close, two backends may select differently and both be right; all later values then differ by
// whole experts. So backends are compared on the same selection, and a selection is judged by the
// scores it was made from. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ir/graph.h"

namespace rullama {

// A topk op on rows of the step.
struct RouterSelection {
  std::string scores;   // name of its operand, f32[T, ..., n]
  std::string indices;  // name of its result, i32[T, ..., k]
  int64_t columns = 0;  // n
  int64_t count = 0;    // k
};
// The selections of a graph, in the order of its ops.
std::vector<RouterSelection> RouterSelections(const Graph& graph);

// The graph with these values replaced by inputs of the same names. The ops that compute them stay,
// and their results, outputs too, get the suffix ".computed". Names that the graph does not have
// are ignored.
Graph WithPinnedValues(Graph graph, const std::vector<std::string>& values);

struct SelectionError {
  int64_t rows = 0;  // rows whose scores give another selection or order
  // The largest amount by which a score exceeds one that was selected before it, relative to the
  // root mean square of the row's scores; the maximum over all rows.
  double gap = 0;
};
// `indices` has rows of `count` indices as floats, `scores` rows of `columns` scores. An index that
// is out of range or occurs twice in a row gives an infinite gap.
SelectionError CompareSelection(std::span<const float> indices, std::span<const float> scores,
                                const RouterSelection& selection);

}  // namespace rullama
