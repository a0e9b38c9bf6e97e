// Pointwise ops, reductions and sorting.
#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

Types InferUnary(Context& c) {
  WantEnumerator(c, "rl_unary", c.attrs<rl_unary_attrs>().fn);
  c.WantDType(0, DType::kF32);
  return {c.operand(0)};
}

Types InferBinary(Context& c) {
  WantEnumerator(c, "rl_binary", c.attrs<rl_binary_attrs>().fn);
  const TensorType& a = c.operand(0);
  const TensorType& b = c.operand(1);
  if (!c.WantDType(0, DType::kF32) || !c.WantRank(1, a.rank) || !c.WantDType(1, DType::kF32)) {
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
  const TensorType& x = c.operand(0);
  c.WantDType(0, DType::kF32);
  if (c.operand(1) == TensorType(DType::kF32, {1})) return {x};
  if (x.rank < 2) c.Fail("operand x is {}, expected rank 2 or more", ToString(x));
  c.WantVector(1, x.last());
  return {x};
}

Types InferAffine(Context& c) {
  c.WantDType(0, DType::kF32);
  return {c.operand(0)};
}

Types InferSelect(Context& c) {
  c.WantDType(0, DType::kF32);
  c.WantType(1, c.operand(0));
  return {c.operand(0)};
}

Types InferWhere(Context& c) {
  c.WantDType(0, DType::kF32);
  if (!c.WantPlain(1)) return {};
  TensorType type = c.operand(0);
  type.dtype = c.operand(1).dtype;
  c.WantType(1, type);
  c.WantType(2, type);
  return {type};
}

Types InferEntropy(Context& c) {
  if (!c.WantMatrix(0)) return {};
  return {TensorType(DType::kF32, {c.operand(0).rows()})};
}

Types InferReduce(Context& c) {
  WantEnumerator(c, "rl_reduce", c.attrs<rl_reduce_attrs>().fn);
  TensorType y = c.operand(0);
  c.WantDType(0, DType::kF32);
  if (y.rank < 2) {
    c.Fail("operand x is {}, expected rank 2 or more", ToString(y));
    return {};
  }
  y.dim(y.rank - 1) = 1;
  return {y};
}

Types InferArgMax(Context& c) {
  if (!c.WantMatrix(0)) return {};
  return {TensorType(DType::kI32, {c.operand(0).rows()})};
}

Types InferTopK(Context& c) {
  if (!c.WantMatrix(0)) return {};
  const TensorType& x = c.operand(0);
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
