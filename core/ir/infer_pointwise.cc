// Pointwise ops, reductions and sorting.
#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

Types InferUnary(Context& c) {
  using In = operands::Unary;
  WantEnumerator(c, "rl_unary", c.attrs<rl_unary_attrs>().fn);
  c.WantDType(In::x, DType::kF32);
  return {c.operand(In::x)};
}

Types InferBinary(Context& c) {
  using In = operands::Binary;
  WantEnumerator(c, "rl_binary", c.attrs<rl_binary_attrs>().fn);
  const TensorType& a = c.operand(In::a);
  const TensorType& b = c.operand(In::b);
  if (!c.WantDType(In::a, DType::kF32) || !c.WantRank(In::b, a.rank) ||
      !c.WantDType(In::b, DType::kF32)) {
    return {};
  }
  for (int axis = 0; axis < a.rank; ++axis) {
    const bool broadcast = axis > 0 && b.dim(axis) == Dim(1);
    if (b.dim(axis) != a.dim(axis) && !broadcast) {
      c.Fail("{} does not broadcast to {}", ToString(b), ToString(a));
    }
  }
  return {a};
}

Types InferScale(Context& c) {
  using In = operands::Scale;
  const TensorType& x = c.operand(In::x);
  c.WantDType(In::x, DType::kF32);
  if (c.operand(In::weight) == TensorType(DType::kF32, {1})) return {x};
  if (x.rank < 2) c.Fail("operand x is {}, expected rank 2 or more", ToString(x));
  c.WantVector(In::weight, x.last());
  return {x};
}

Types InferAffine(Context& c) {
  using In = operands::Affine;
  c.WantDType(In::x, DType::kF32);
  return {c.operand(In::x)};
}

Types InferClamp(Context& c) {
  using In = operands::Clamp;
  const auto& a = c.attrs<rl_clamp_attrs>();
  if (!(a.lo <= a.hi)) c.Fail("bounds are {} and {}, expected lo <= hi", a.lo, a.hi);
  c.WantDType(In::x, DType::kF32);
  return {c.operand(In::x)};
}

Types InferAddVector(Context& c) {
  using In = operands::AddVector;
  if (!c.WantLeastRank(In::x, 2)) return {};
  c.WantVector(In::vector, c.operand(In::x).last());
  return InferRowwise(c);
}

Types InferSelect(Context& c) {
  using In = operands::Select;
  c.WantDType(In::condition, DType::kF32);
  c.WantType(In::a, c.operand(In::condition));
  return {c.operand(In::condition)};
}

Types InferWhere(Context& c) {
  using In = operands::Where;
  c.WantDType(In::condition, DType::kF32);
  if (!c.WantPlain(In::a)) return {};
  TensorType type = c.operand(In::condition);
  type.dtype = c.operand(In::a).dtype;
  c.WantType(In::a, type);
  c.WantType(In::b, type);
  return {type};
}

Types InferEntropy(Context& c) {
  using In = operands::Entropy;
  if (!c.WantMatrix(In::x)) return {};
  return {TensorType(DType::kF32, {c.operand(In::x).rows()})};
}

Types InferReduce(Context& c) {
  using In = operands::Reduce;
  WantEnumerator(c, "rl_reduce", c.attrs<rl_reduce_attrs>().fn);
  TensorType y = c.operand(In::x);
  c.WantDType(In::x, DType::kF32);
  if (y.rank < 2) {
    c.Fail("operand x is {}, expected rank 2 or more", ToString(y));
    return {};
  }
  y.dim(y.rank - 1) = 1;
  return {y};
}

Types InferMeanRows(Context& c) {
  using In = operands::MeanRows;
  constexpr int64_t kMaxGroup = 64;
  const int64_t group = c.attrs<rl_mean_rows_attrs>().group;
  if (!c.WantMatrix(In::x)) return {};
  if (group > kMaxGroup) c.Fail("group is {}, expected at most {}", group, kMaxGroup);
  const auto rows = WantGroupsOfRows(c, In::x, group);
  if (!rows) return {};
  return {TensorType(DType::kF32, {*rows, c.operand(In::x).last()})};
}

Types InferArgMax(Context& c) {
  using In = operands::ArgMax;
  if (!c.WantMatrix(In::x)) return {};
  return {TensorType(DType::kI32, {c.operand(In::x).rows()})};
}

Types InferTopK(Context& c) {
  using In = operands::TopK;
  if (!c.WantMatrix(In::x)) return {};
  const TensorType& x = c.operand(In::x);
  const int64_t k = c.attrs<rl_topk_attrs>().k;
  if (!x.last().IsConstant() || k < 1 || k > x.last().constant) {
    c.Fail("k = {} is outside 1 to the {} columns of {}", k, ToString(x.last()), ToString(x));
    return {};
  }
  return {TensorType(DType::kF32, {x.rows(), k}), TensorType(DType::kI32, {x.rows(), k})};
}

Types InferCumSum(Context& c) { return InferRowwise(c); }

Types InferSoftmax(Context& c) { return InferRowwise(c); }

}  // namespace rullama::infer_internal
