// Losses and derivatives.
#include <cmath>
#include <cstdint>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

namespace {

// Targets of a loss are compared as f32 in its decomposition, which holds integers up to this one
// exactly.
constexpr int64_t kMaxClasses = int64_t{1} << 24;

// logits f32[rows, n] and targets i32[rows].
bool WantLogits(Context& c, size_t logits, size_t targets) {
  if (!c.WantMatrix(logits) || !c.WantIndex(targets, c.operand(logits).rows())) return false;
  const Dim& n = c.operand(logits).last();
  if (n.IsConstant() && n.constant <= kMaxClasses) return true;
  c.Fail("{} columns of logits, expected a constant of at most {}", ToString(n), kMaxClasses);
  return false;
}

}  // namespace

Types InferCrossEntropy(Context& c) {
  using In = operands::CrossEntropy;
  if (!WantLogits(c, In::logits, In::targets)) return {};
  return {TensorType(DType::kF32, {c.operand(In::logits).rows()})};
}

Types InferCrossEntropyGrad(Context& c) {
  using In = operands::CrossEntropyGrad;
  c.WantVector(In::factor, 1);
  if (!WantLogits(c, In::logits, In::targets)) return {};
  return {c.operand(In::logits)};
}

Types InferLinearCrossEntropy(Context& c) {
  using In = operands::LinearCrossEntropy;
  const float cap = c.attrs<rl_linear_cross_entropy_attrs>().cap;
  if (!std::isfinite(cap) || cap < 0) c.Fail("cap is {}, expected a finite number >= 0", cap);
  c.WantVector(In::factor, 1);
  if (!c.WantMatrix(In::x)) return {};
  const TensorType& x = c.operand(In::x);
  c.WantIndex(In::targets, x.rows());
  const auto n = WantWeight(c, In::weight, x.last(), true);
  if (!n) return {};
  if (n->constant > kMaxClasses) {
    c.Fail("weight has {} rows, expected at most {}", n->constant, kMaxClasses);
  }
  return {TensorType(DType::kF32, {x.rows()}), x};
}

Types InferSoftmaxGrad(Context& c) {
  using In = operands::SoftmaxGrad;
  c.WantType(In::dy, c.operand(In::y));
  return InferRowwise(c);
}

Types InferRmsNormGrad(Context& c) {
  using In = operands::RmsNormGrad;
  WantEps(c, c.attrs<rl_rms_norm_grad_attrs>().eps);
  c.WantType(In::dy, c.operand(In::x));
  c.WantVector(In::weight, c.operand(In::x).last());
  return InferRowwise(c);
}

Types InferGeGluGrad(Context& c) {
  using In = operands::GeGluGrad;
  c.WantDType(In::gate, DType::kF32);
  c.WantType(In::up, c.operand(In::gate));
  c.WantType(In::dy, c.operand(In::gate));
  return {c.operand(In::gate), c.operand(In::gate)};
}

Types InferScatterRows(Context& c) {
  using In = operands::ScatterRows;
  c.WantDType(In::x, DType::kF32);
  TensorType y = c.operand(In::x);
  c.WantIndex(In::rows, y.rows());
  y.dim(0) = Dim::T();
  return {y};
}

Types InferScatterLast(Context& c) {
  using In = operands::ScatterLast;
  const int64_t n = c.attrs<rl_scatter_last_attrs>().n;
  TensorType index = c.operand(In::x);
  c.WantDType(In::x, DType::kF32);
  if (index.rank > 2) c.Fail("operand x is {}, expected rank 1 or 2", ToString(index));
  if (n < 1 || n > kMaxElements) c.Fail("n is {}, expected 1 to {}", n, kMaxElements);
  index.dtype = DType::kI32;
  c.WantType(In::index, index);
  return {TensorType(DType::kF32, {index.rows(), n})};
}

Types InferPad(Context& c) {
  using In = operands::Pad;
  const auto& a = c.attrs<rl_pad_attrs>();
  TensorType y = c.operand(In::x);
  if (!c.WantPlain(In::x) || !WantInnerAxis(c, a.axis)) return {};
  const Dim& dim = y.dim(a.axis);
  const auto fits = [](int64_t zeros) { return zeros >= 0 && zeros <= kMaxElements; };
  if (!dim.IsConstant() || !fits(a.before) || !fits(a.after)) {
    c.Fail("{} zeros before and {} after axis {} of {} are out of range", a.before, a.after, a.axis,
           ToString(y));
    return {};
  }
  y.dim(a.axis) = dim.constant + a.before + a.after;
  return {y};
}

Types InferSumSquares(Context& c) {
  using In = operands::SumSquares;
  c.WantDType(In::x, DType::kF32);
  return {TensorType(DType::kF32, {1})};
}

}  // namespace rullama::infer_internal
