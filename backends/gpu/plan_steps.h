// The steps that a plan runs, and what kernels, tiles, fusions and memory may assume of them. Pure
// functions.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>

#include "backends/gpu/target.h"

namespace rullama::gpu {

// The kinds of steps, by falling freedom to treat a row by itself.
enum class StepKind : uint8_t {
  kOneRow,  // one row, by the kernels of one row
  // Several slots decode by the kernels of one row, each of which computes all rows of a step side
  // by side and each row as if it were alone. A device with kernels of its own for one row does so
  // for few slots: the time of a step then grows with its rows, not with the slots of the session.
  kRowByRow,
  kFewRows,   // at most sdk::kFewRows
  kManyRows,  // any
};

// The T and R of a step.
struct StepSize {
  int64_t t, r;
};

struct PlanSteps {
  StepKind kind;
  // The T and R by which kernels, tiles and fusions are chosen: those of the largest step; where
  // steps decode for several slots, one row for each slot, or one row with kRowByRow. All plans of
  // a batch then have the same kernels with the same tiles, so what a row gives does not depend on
  // how many there are.
  StepSize decisive;
  // The T and R for which memory and workgroups suffice: those of the largest step that the plan
  // runs, or of the step above.
  StepSize largest;

  [[nodiscard]] bool UseRowKernels() const { return kind <= StepKind::kRowByRow; }
  // Whether all steps have one row, which the kernels of one row compute.
  [[nodiscard]] bool HaveOneRow() const { return UseRowKernels() && largest.t == 1; }
  // Whether no private value shares memory with another. Only then may an op write the result of a
  // later op or read an operand of an earlier one: shared memory could hold another value by then.
  // An op that copies its operands first may also write the result of the op after it.
  // With few rows, transients are small, so each gets memory of its own: sharing it would order
  // dispatches that have nothing to do with each other.
  [[nodiscard]] bool LeaveTransientsUnaliased() const { return kind <= StepKind::kFewRows; }
  // The number of rows of a value in the decisive step.
  [[nodiscard]] int64_t DecisiveRows(const rl_value& value) const;
};

PlanSteps StepsOf(const sdk::GraphView& graph, const Target& target);

}  // namespace rullama::gpu
