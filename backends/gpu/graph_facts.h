// Facts about the values of a graph: shapes, types, and which ops read and produce them. Pure
// functions, and tables that do not change.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <vector>

#include "backends/gpu/target.h"
#include "backends/gpu/weights.h"

namespace rullama::gpu {

inline DType TypeOf(const rl_value& value) { return static_cast<DType>(value.dtype); }
inline int64_t Last(const rl_value& value) { return value.dims[value.rank - 1].constant; }
// Elements of a row: the product of all dimensions but the first, which are constant.
int64_t RowElements(const rl_value& value);
// The product of the dimensions between the first and the last.
int64_t MiddleElements(const rl_value& value);
// The T and R of a step.
struct StepSize {
  int64_t t, r;
};
// Whether a graph decodes for several slots by the kernels of one row, each of which computes all
// rows of a step side by side and each row as if it were alone. A device with kernels of its own
// for one row does so for few slots: the time of a step then grows with its rows, not with the
// slots of the session.
bool RunsRowByRow(const sdk::GraphView& graph, const Target& target);
// The T and R by which kernels, tiles and fusions are chosen: those of the largest step; where
// steps decode for several slots, one row for each slot, or one row if the graph runs row by row.
// All plans of a batch then have the same kernels with the same tiles, so what a row gives does not
// depend on how many there are.
StepSize DecisiveStep(const sdk::GraphView& graph, const Target& target);
// The number of rows of a value in that step.
int64_t DecisiveRows(const sdk::GraphView& graph, const Target& target, const rl_value& value);
// The T and R for which memory and workgroups suffice: those of the largest step that the plan
// runs, or of the step above.
StepSize LargestStep(const sdk::GraphView& graph, const Target& target);
// Whether the plan runs steps of one row that want at most one, by the kernels for these.
inline bool HasOneRow(const sdk::GraphView& graph, const Target& target) {
  const StepSize step = DecisiveStep(graph, target);
  return step.t == 1 && step.r <= 1 && graph.max_t() == 1;
}
// Whether the graph computes a loss or gradients through layers that choose experts. There a
// product's rounding of its operand to f16 can choose another expert, which changes the loss by
// more than rounding does.
bool LossDependsOnExperts(const sdk::GraphView& graph);
// The layout on the device of a value whose dimensions are all constant.
WeightShape ShapeOfConstant(const rl_value& value);

// Operand `i` of an op, or RL_NO_VALUE if it is absent.
inline uint32_t OperandIndex(const rl_op& op, uint32_t i) {
  return i < op.input_count ? op.inputs[i] : RL_NO_VALUE;
}

// Whether ops of this kind multiply by a matrix of weights, so that they may read f16 rows.
bool IsProduct(uint32_t kind);

// Whether the host never sees a value, so that it may lie anywhere or not be computed at all.
bool IsPrivate(const rl_value& value);

// Whether no private value shares memory with another. Only then may an op write the result of a
// later op or read an operand of an earlier one: shared memory could hold another value by then. An
// op that copies its operands first may also write the result of the op after it.
// With few rows, transients are small, so each gets memory of its own: sharing it would order
// dispatches that have nothing to do with each other.
bool TransientsAreUnaliased(const sdk::GraphView& graph, const Target& target);

// The producer and the readers of each value. Keeps no reference to the graph.
class ValueUses {
 public:
  explicit ValueUses(const sdk::GraphView& graph);
  // The op that computes a value, or RL_NO_OP.
  [[nodiscard]] uint32_t ProducerOf(uint32_t value) const { return producers_[value]; }
  // The ops that read a value, in order, once per operand.
  [[nodiscard]] const std::vector<uint32_t>& ReadersOf(uint32_t value) const {
    return readers_[value];
  }

 private:
  std::vector<uint32_t> producers_;
  std::vector<std::vector<uint32_t>> readers_;
};

}  // namespace rullama::gpu
