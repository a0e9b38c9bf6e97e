// Facts about the values of a graph: shapes, types, and which ops read and produce them. Pure
// functions, and tables that do not change.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <vector>

#include "backends/gpu/weights.h"

namespace rullama::gpu {

inline DType TypeOf(const rl_value& value) { return static_cast<DType>(value.dtype); }
inline int64_t Last(const rl_value& value) { return value.dims[value.rank - 1].constant; }
// Elements of a row: the product of all dimensions but the first, which are constant.
int64_t RowElements(const rl_value& value);
// The product of the dimensions between the first and the last.
int64_t MiddleElements(const rl_value& value);
// The T and R for which a graph is lowered: those of its largest step, or, where steps decode for
// several slots, one row for each slot. All plans of a batch then have the same kernels with the
// same tiles, so what a row gives does not depend on how many there are.
struct StepSize {
  int64_t t, r;
};
StepSize LargestStep(const sdk::GraphView& graph);
// The number of rows of a value in that step.
int64_t MaxRows(const sdk::GraphView& graph, const rl_value& value);
// Whether that step has one row and wants at most one.
inline bool HasOneRow(const sdk::GraphView& graph) {
  const StepSize step = LargestStep(graph);
  return step.t == 1 && step.r <= 1;
}
// The layout on the device of a value whose dimensions are all constant.
WeightShape ShapeOfConstant(const rl_value& value);

// Operand `i` of an op, or RL_NO_VALUE if it is absent.
inline uint32_t OperandIndex(const rl_op& op, uint32_t i) {
  return i < op.input_count ? op.inputs[i] : RL_NO_VALUE;
}

// Whether the host never sees a value, so that it may lie anywhere or not be computed at all.
bool IsPrivate(const rl_value& value);

// Whether no private value shares memory with another. Only then may an op write the result of a
// later op or read an operand of an earlier one: shared memory could hold another value by then.
// With few rows, transients are small, so each gets memory of its own: sharing it would order
// dispatches that have nothing to do with each other.
bool TransientsAreUnaliased(const sdk::GraphView& graph);

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
