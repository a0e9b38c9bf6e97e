// Losses and derivatives.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>

#include "backends/gpu/op_rows.h"
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kTrainingThreads = 256;

void CrossEntropy(PlanBuilder& plan) {
  const rl_value& logits = plan.Input(operands::CrossEntropy::logits);
  DispatchBuilder(
      plan,
      kernels::Loss{.threads = ThreadsOfRow(plan.target(), Last(logits)), .op = LossOp::kLoss},
      {.x = plan.InputIndex(operands::CrossEntropy::logits),
       .targets = plan.InputIndex(operands::CrossEntropy::targets),
       .y = plan.ResultIndex(),
       .rows = logits.dims[0],
       .columns = Last(logits),
       .cap = 0})
      .Emit(static_cast<uint64_t>(plan.MaxRows(logits)));
}

void CrossEntropyGrad(PlanBuilder& plan) {
  const rl_value& logits = plan.Input(operands::CrossEntropyGrad::logits);
  DispatchBuilder(
      plan,
      kernels::Loss{.threads = ThreadsOfRow(plan.target(), Last(logits)), .op = LossOp::kLossGrad},
      {.x = plan.InputIndex(operands::CrossEntropyGrad::logits),
       .targets = plan.InputIndex(operands::CrossEntropyGrad::targets),
       .factor = plan.InputIndex(operands::CrossEntropyGrad::factor),
       .y = plan.ResultIndex(),
       .rows = logits.dims[0],
       .columns = Last(logits),
       .cap = 0})
      .Emit(static_cast<uint64_t>(plan.MaxRows(logits)));
}

// The derivative of a result along the last dimension, from a value `x` and dy.
void EmitRowGrad(PlanBuilder& plan, RowGradOp op, uint32_t x, uint32_t dy, uint32_t weight,
                 float eps) {
  const rl_value& dx = plan.Result();
  const int64_t middle = MiddleElements(dx);
  DispatchBuilder(plan,
                  kernels::RowGrad{.threads = ThreadsOfRow(plan.target(), Last(dx)), .op = op},
                  {.x = x,
                   .dy = dy,
                   .weight = weight,
                   .dx = plan.ResultIndex(),
                   .rows = {dx.dims[0], middle},
                   .columns = Last(dx),
                   .eps = eps})
      .Emit(static_cast<uint64_t>(plan.MaxRows(dx) * middle));
}

void SoftmaxGrad(PlanBuilder& plan) {
  EmitRowGrad(plan, RowGradOp::kSoftmaxGrad, plan.InputIndex(operands::SoftmaxGrad::y),
              plan.InputIndex(operands::SoftmaxGrad::dy), RL_NO_VALUE, 0);
}

void RmsNormGrad(PlanBuilder& plan) {
  EmitRowGrad(plan, RowGradOp::kRmsNormGrad, plan.InputIndex(operands::RmsNormGrad::x),
              plan.InputIndex(operands::RmsNormGrad::dy),
              plan.InputIndex(operands::RmsNormGrad::weight),
              plan.attrs<rl_rms_norm_grad_attrs>().eps);
}

// `count`: the elements of `index` for each row of the result, or all of them for scatter_rows.
void EmitScatter(PlanBuilder& plan, ScatterOp op, uint32_t x, uint32_t index, const rl_dim& count) {
  const rl_value& y = plan.Result();
  const int64_t columns = RowElements(y);
  DispatchBuilder(plan, kernels::Scatter{.threads = ThreadsOfRow(plan.target(), columns), .op = op},
                  {.x = x,
                   .index = index,
                   .y = plan.ResultIndex(),
                   .rows = y.dims[0],
                   .count = count,
                   .columns = columns,
                   .op = plan.op_index() + 1})
      .Emit(static_cast<uint64_t>(plan.MaxRows(y)));
}

void ScatterRows(PlanBuilder& plan) {
  EmitScatter(plan, ScatterOp::kScatterRows, plan.InputIndex(operands::ScatterRows::x),
              plan.InputIndex(operands::ScatterRows::rows),
              plan.Input(operands::ScatterRows::x).dims[0]);
}

void ScatterLast(PlanBuilder& plan) {
  const rl_value& x = plan.Input(operands::ScatterLast::x);
  EmitScatter(plan, ScatterOp::kScatterLast, plan.InputIndex(operands::ScatterLast::x),
              plan.InputIndex(operands::ScatterLast::index),
              {.constant = RowElements(x), .t = 0, .r = 0});
}

void EmitSum(PlanBuilder& plan, bool square, const Operand& x, const Operand& y, const rl_dim& rows,
             int64_t inner, uint64_t groups) {
  DispatchBuilder(plan, kernels::SumSquares{.threads = kTrainingThreads, .square = square},
                  {.x = x, .y = y, .rows = rows, .inner = inner})
      .Emit(groups);
}

// Sums of parts, then of these. How many there are depends on the largest step alone, so that a
// step adds in the same order every time.
void SumSquares(PlanBuilder& plan) {
  constexpr int64_t kElementsOfPart = 16384, kMaxParts = 64;
  const uint32_t x = plan.InputIndex(operands::SumSquares::x);
  const rl_value& value = plan.graph().value(x);
  const int64_t inner = RowElements(value);
  const int64_t parts =
      std::clamp<int64_t>(plan.MaxRows(value) * inner / kElementsOfPart, 1, kMaxParts);
  const Operand result{.value = plan.ResultIndex()};
  if (parts == 1) {
    EmitSum(plan, true, {.value = x}, result, value.dims[0], inner, 1);
    return;
  }
  const Operand partial{.scratch =
                            plan.scratch().New(static_cast<uint64_t>(parts) * sizeof(float))};
  EmitSum(plan, true, {.value = x}, partial, value.dims[0], inner, static_cast<uint64_t>(parts));
  EmitSum(plan, false, partial, result, {.constant = parts, .t = 0, .r = 0}, 1, 1);
}

}  // namespace

uint32_t ThreadsOfRow(const Target& target, int64_t columns) {
  const auto wanted = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(columns / 8, 1)));
  return static_cast<uint32_t>(
      std::min<uint64_t>(std::max<uint64_t>(wanted, 64), target.prefers.wide));
}

const OpRow rows::kCrossEntropy = {RL_OP_cross_entropy, RefusePlain, CrossEntropy};
const OpRow rows::kCrossEntropyGrad = {RL_OP_cross_entropy_grad, RefusePlain, CrossEntropyGrad};
const OpRow rows::kSoftmaxGrad = {RL_OP_softmax_grad, RefusePlain, SoftmaxGrad};
const OpRow rows::kRmsNormGrad = {RL_OP_rms_norm_grad, RefusePlain, RmsNormGrad};
const OpRow rows::kScatterRows = {RL_OP_scatter_rows, RefusePlain, ScatterRows};
const OpRow rows::kScatterLast = {RL_OP_scatter_last, RefusePlain, ScatterLast};
const OpRow rows::kSumSquares = {RL_OP_sum_squares, RefusePlain, SumSquares};

}  // namespace rullama::gpu
