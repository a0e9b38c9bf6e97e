// Sampling.
#include <cmath>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

Types InferPenalties(Context& c) {
  using In = operands::Penalties;
  const auto& a = c.attrs<rl_penalties_attrs>();
  if (!c.WantMatrix(In::logits) || !c.WantRank(In::history, 2) ||
      !c.WantDType(In::history, DType::kI32) || !c.WantRank(In::tokens, 1)) {
    return {};
  }
  const TensorType& logits = c.operand(In::logits);
  const TensorType& history = c.operand(In::history);
  const Dim& fresh = c.operand(In::tokens).rows();
  c.WantIndex(In::tokens, fresh);
  c.WantIndex(In::q_pos, logits.rows());
  c.WantIndex(In::q_slot, logits.rows());
  c.WantIndex(In::kv_pos, fresh);
  c.WantIndex(In::kv_slot, fresh);
  c.WantIndex(In::past, history.dim(0));
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
  using In = operands::BiasAdd;
  if (!c.WantMatrix(In::logits) || !c.WantRank(In::ids, 1)) return {};
  c.WantDType(In::ids, DType::kI32);
  c.WantVector(In::bias, c.operand(In::ids).rows());
  return {c.operand(In::logits)};
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
  using In = operands::RandomUniform;
  c.WantIndex(In::seed, 2);
  if (!c.WantRank(In::pos, 1)) return {};
  c.WantIndex(In::pos, c.operand(In::pos).rows());
  c.WantIndex(In::slot, c.operand(In::pos).rows());
  return {TensorType(DType::kF32, {c.operand(In::pos).rows()})};
}

Types InferCategorical(Context& c) {
  using In = operands::Categorical;
  if (!c.WantMatrix(In::x)) return {};
  c.WantVector(In::u, c.operand(In::x).rows());
  return {TensorType(DType::kI32, {c.operand(In::x).rows()})};
}

Types InferEntropyAccept(Context& c) {
  using In = operands::EntropyAccept;
  const float bound = c.attrs<rl_entropy_accept_attrs>().bound;
  if (!(bound >= 0)) c.Fail("bound is {}, expected >= 0", bound);
  if (!c.WantDType(In::entropy, DType::kF32) || !c.WantRank(In::entropy, 1)) return {};
  return {c.operand(In::entropy)};
}

}  // namespace rullama::infer_internal
