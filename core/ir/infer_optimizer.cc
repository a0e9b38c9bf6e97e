// Ops that write the gradients and parameters of training.
#include <cmath>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

Types InferGradAccumulate(Context& c) {
  using In = operands::GradAccumulate;
  const float factor = c.attrs<rl_grad_accumulate_attrs>().factor;
  if (!std::isfinite(factor)) c.Fail("factor is not finite");
  if (!c.WantMatrix(In::a) || !c.WantMatrix(In::b)) return {};
  const TensorType& a = c.operand(In::a);
  const TensorType& b = c.operand(In::b);
  if (a.rows() != b.rows()) c.Fail("a is {} and b {}", ToString(a), ToString(b));
  c.WantType(In::g, {DType::kF32, {a.last(), b.last()}});
  return {c.operand(In::g)};
}

Types InferAdamW(Context& c) {
  using In = operands::AdamW;
  const auto& a = c.attrs<rl_adamw_attrs>();
  for (const float rate : {a.m_rate, a.v_rate}) {
    if (!(rate > 0 && rate <= 1)) c.Fail("m_rate or v_rate is {}, expected 0 < rate <= 1", rate);
  }
  WantEps(c, a.eps);
  if (!std::isfinite(a.weight_decay) || a.weight_decay < 0) {
    c.Fail("weight_decay is {}, expected a finite number >= 0", a.weight_decay);
  }
  c.WantDType(In::p, DType::kF32);
  const TensorType& p = c.operand(In::p);
  for (const auto i : {In::m, In::v, In::g}) c.WantType(i, p);
  for (const auto i : {In::lr, In::m_correction, In::v_correction, In::g_factor}) {
    c.WantVector(i, 1);
  }
  return {p, p, p, p};
}

}  // namespace rullama::infer_internal
