// Sampling.
#include <cmath>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

namespace {

// The operands that both kinds of penalties have. True if there is a history.
bool WantHistory(Context& c) {
  using In = operands::Penalties;
  if (!c.WantMatrix(In::logits) || !c.WantRank(In::history, 2) ||
      !c.WantDType(In::history, DType::kI32) || !c.WantRank(In::tokens, 1)) {
    return false;
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
  return true;
}

}  // namespace

Types InferPenalties(Context& c) {
  using In = operands::Penalties;
  if (!WantHistory(c)) return {};
  const auto& a = c.attrs<rl_penalties_attrs>();
  const TensorType& history = c.operand(In::history);
  if (a.last_n < 0 || a.last_n > history.dim(1).constant) {
    c.Fail("last_n = {} is outside 0 to the capacity {}", a.last_n, ToString(history.dim(1)));
  }
  if (!std::isfinite(a.repeat) || a.repeat <= 0 || !std::isfinite(a.frequency) ||
      !std::isfinite(a.presence)) {
    c.Fail("penalties {}, {}, {} must be finite and repeat > 0", a.repeat, a.frequency, a.presence);
  }
  return {c.operand(In::logits)};
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

Types InferTokenMask(Context& c) {
  using In = operands::TokenMask;
  if (!c.WantMatrix(In::logits)) return {};
  constexpr int64_t kBits = 32;  // of a word
  const TensorType& logits = c.operand(In::logits);
  const int64_t words = (logits.last().constant + kBits - 1) / kBits;
  c.WantType(In::bits, {DType::kI32, {logits.rows(), words}});
  return {logits};
}

Types InferRowBias(Context& c) {
  using In = operands::RowBias;
  if (!c.WantMatrix(In::logits) || !c.WantRank(In::ids, 2)) return {};
  const TensorType& logits = c.operand(In::logits);
  const Dim& count = c.operand(In::ids).last();
  c.WantType(In::ids, {DType::kI32, {logits.rows(), count}});
  c.WantType(In::bias, {DType::kF32, {logits.rows(), count}});
  return {logits};
}

Types InferRowPenalties(Context& c) {
  using In = operands::RowPenalties;
  if (!WantHistory(c)) return {};
  constexpr int64_t kSettings = 4;
  const TensorType& logits = c.operand(In::logits);
  c.WantType(In::settings, {DType::kF32, {logits.rows(), kSettings}});
  return {logits};
}

Types InferRowUniform(Context& c) {
  using In = operands::RowUniform;
  if (!c.WantRank(In::pos, 1)) return {};
  constexpr int64_t kWords = 3;
  const Dim& rows = c.operand(In::pos).rows();
  c.WantIndex(In::pos, rows);
  c.WantType(In::key, {DType::kI32, {rows, kWords}});
  return {TensorType(DType::kF32, {rows})};
}

Types InferRowSample(Context& c) {
  using In = operands::RowSample;
  if (!c.WantMatrix(In::x)) return {};
  constexpr int64_t kSettings = 5;
  const Dim& rows = c.operand(In::x).rows();
  c.WantVector(In::u, rows);
  c.WantType(In::settings, {DType::kF32, {rows, kSettings}});
  return {TensorType(DType::kI32, {rows})};
}

}  // namespace rullama::infer_internal
