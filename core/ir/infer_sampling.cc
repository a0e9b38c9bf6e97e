// Sampling.
#include <cmath>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

Types InferPenalties(Context& c) {
  const auto& a = c.attrs<rl_penalties_attrs>();
  if (!c.WantMatrix(0) || !c.WantRank(1, 2) || !c.WantDType(1, DType::kI32) || !c.WantRank(2, 1)) {
    return {};
  }
  const TensorType& logits = c.operand(0);
  const TensorType& history = c.operand(1);
  const Dim& fresh = c.operand(2).rows();
  c.WantIndex(2, fresh);
  c.WantIndex(3, logits.rows());
  c.WantIndex(4, logits.rows());
  c.WantIndex(5, fresh);
  c.WantIndex(6, fresh);
  c.WantIndex(7, history.dim(0));
  if (a.last_n < 0 || a.last_n > history.dim(1).constant) {
    c.Fail("last_n = {} is outside 0 to the capacity {}", a.last_n, ToString(history.dim(1)));
  }
  if (!std::isfinite(a.repeat) || a.repeat <= 0 || !std::isfinite(a.frequency) ||
      !std::isfinite(a.presence)) {
    c.Fail("penalties {}, {}, {} must be finite and repeat > 0", a.repeat, a.frequency, a.presence);
  }
  return {logits};
}

Types InferBiasAdd(Context& c) {
  if (!c.WantMatrix(0) || !c.WantRank(1, 1)) return {};
  c.WantDType(1, DType::kI32);
  c.WantVector(2, c.operand(1).rows());
  return {c.operand(0)};
}

namespace {

template <typename Attrs>
Types InferProbabilityMask(Context& c) {
  const float p = c.attrs<Attrs>().p;
  if (!(p > 0 && p <= 1)) c.Fail("p is {}, expected 0 < p <= 1", p);
  if (!c.WantMatrix(0)) return {};
  return {c.operand(0)};
}

}  // namespace

Types InferTopPMask(Context& c) { return InferProbabilityMask<rl_top_p_mask_attrs>(c); }

Types InferMinPMask(Context& c) { return InferProbabilityMask<rl_min_p_mask_attrs>(c); }

Types InferTypicalPMask(Context& c) { return InferProbabilityMask<rl_typical_p_mask_attrs>(c); }

Types InferRandomUniform(Context& c) {
  c.WantIndex(0, 2);
  if (!c.WantRank(1, 1)) return {};
  c.WantIndex(1, c.operand(1).rows());
  c.WantIndex(2, c.operand(1).rows());
  return {TensorType(DType::kF32, {c.operand(1).rows()})};
}

Types InferCategorical(Context& c) {
  if (!c.WantMatrix(0)) return {};
  c.WantVector(1, c.operand(0).rows());
  return {TensorType(DType::kI32, {c.operand(0).rows()})};
}

Types InferEntropyAccept(Context& c) {
  const float bound = c.attrs<rl_entropy_accept_attrs>().bound;
  if (!(bound >= 0)) c.Fail("bound is {}, expected >= 0", bound);
  if (!c.WantDType(0, DType::kF32) || !c.WantRank(0, 1)) return {};
  return {c.operand(0)};
}

}  // namespace rullama::infer_internal
