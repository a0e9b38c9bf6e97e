#include "backends/gpu/plan_steps.h"

#include <rullama/sdk/shape.h>
#include <rullama/sdk/slots.h>

#include <algorithm>

namespace rullama::gpu {
namespace {

bool RunsRowByRow(const sdk::GraphView& graph, const Target& target) {
  // With more slots, products that read the weights once for all rows take less. Steps of 12 rows
  // and more would too, but one row alone takes four times as long by them.
  constexpr int64_t kMaxSlots = 16;
  return sdk::DecodesBatch(graph) && sdk::SlotsOf(graph) <= kMaxSlots && target.prefers.row_kernels;
}

StepSize DecisiveStep(const sdk::GraphView& graph, bool row_by_row) {
  if (!sdk::DecodesBatch(graph)) return {graph.max_t(), graph.max_r()};
  const int64_t rows = row_by_row ? 1 : sdk::SlotsOf(graph);
  return {rows, graph.max_r() > 0 ? rows : 0};
}

// Steps that check drafts have several rows even of a single slot.
StepKind KindOf(const sdk::GraphView& graph, const StepSize& decisive, bool row_by_row) {
  if (row_by_row) return StepKind::kRowByRow;
  if (decisive.t == 1 && graph.max_t() == 1) return StepKind::kOneRow;
  return decisive.t <= sdk::kFewRows ? StepKind::kFewRows : StepKind::kManyRows;
}

}  // namespace

PlanSteps StepsOf(const sdk::GraphView& graph, const Target& target) {
  const bool row_by_row = RunsRowByRow(graph, target);
  const StepSize decisive = DecisiveStep(graph, row_by_row);
  StepSize largest{graph.max_t(), graph.max_r()};
  if (!row_by_row) {
    largest = {std::max(decisive.t, largest.t), std::max(decisive.r, largest.r)};
  }
  return {KindOf(graph, decisive, row_by_row), decisive, largest};
}

int64_t PlanSteps::DecisiveRows(const rl_value& value) const {
  return sdk::DimAt(value.dims[0], decisive.t, decisive.r);
}

}  // namespace rullama::gpu
