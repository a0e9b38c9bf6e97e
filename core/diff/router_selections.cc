#include "core/diff/router_selections.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rullama {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

double RootMeanSquare(std::span<const float> row) {
  double squares = 0;
  for (const float x : row) squares += double{x} * x;
  return std::sqrt(squares / static_cast<double>(row.size()));
}

// The largest amount by which a remaining score exceeds the one selected next.
double GapOf(std::span<const float> chosen, std::span<const float> scores) {
  std::vector<double> left(scores.begin(), scores.end());
  double gap = 0;
  for (const float index : chosen) {
    if (!(index >= 0) || index >= static_cast<float>(scores.size())) return kNoBound;
    double& score = left[static_cast<size_t>(index)];
    if (score == -kNoBound) return kNoBound;
    gap = std::max(gap, *std::ranges::max_element(left) - score);
    score = -kNoBound;
  }
  return gap;
}

}  // namespace

std::vector<RouterSelection> RouterSelections(const Graph& graph) {
  std::vector<RouterSelection> selections;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kTopK) continue;
    const Value& scores = graph.value(op.inputs[operands::TopK::x]);
    const Value& indices = graph.value(op.results[1]);
    if (indices.type.rows() != Dim::T()) continue;
    selections.push_back(
        {scores.name, indices.name, scores.type.last().constant, indices.type.last().constant});
  }
  return selections;
}

Graph WithPinnedValues(Graph graph, const std::vector<std::string>& values) {
  for (const std::string& name : values) {
    const ValueId computed = graph.Find(name);
    if (computed == kNoValue) continue;
    Value given = graph.value(computed);
    given.lifetime = Lifetime::kInput;
    given.producer = kNoOp;
    graph.values[computed].name += ".computed";
    const auto id = static_cast<ValueId>(graph.values.size());
    graph.values.push_back(std::move(given));
    for (Op& op : graph.ops) std::ranges::replace(op.inputs, computed, id);
  }
  return graph;
}

SelectionError CompareSelection(std::span<const float> indices, std::span<const float> scores,
                                const RouterSelection& selection) {
  const auto count = static_cast<size_t>(selection.count);
  const auto columns = static_cast<size_t>(selection.columns);
  SelectionError error;
  for (size_t row = 0; row < scores.size() / columns; ++row) {
    const auto of_row = scores.subspan(row * columns, columns);
    const double gap = GapOf(indices.subspan(row * count, count), of_row);
    if (!(gap > 0)) continue;
    ++error.rows;
    const double size = RootMeanSquare(of_row);
    error.gap = std::max(error.gap, size > 0 ? gap / size : kNoBound);
  }
  return error;
}

}  // namespace rullama
