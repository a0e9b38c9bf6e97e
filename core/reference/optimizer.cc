// Gradients of parameters and the steps of an optimizer.
#include <cmath>

#include "core/reference/kernels.h"

namespace rullama::reference {

Status EvalGradAccumulate(const Call& call) {
  using In = operands::GradAccumulate;
  const double factor = call.As<rl_grad_accumulate_attrs>().factor;
  const Tensor& a = call.in(In::a);
  const Tensor& b = call.in(In::b);
  Tensor& next = call.y();
  for (int64_t row = 0; row < a.rows(); ++row) {
    const auto left = Row(a, row);
    for (size_t i = 0; i < left.size(); ++i) {
      const auto right = Row(b, row);
      const auto sum = Row(next, static_cast<int64_t>(i));
      for (size_t j = 0; j < right.size(); ++j) sum[j] += left[i] * right[j];
    }
  }
  for (size_t i = 0; i < next.f.size(); ++i) next.f[i] = call.in(In::g).f[i] + factor * next.f[i];
  return OkStatus();
}

Status EvalAdamW(const Call& call) {
  using In = operands::AdamW;
  const auto& a = call.As<rl_adamw_attrs>();
  const double lr = call.in(In::lr).f[0];
  const double m_correction = call.in(In::m_correction).f[0];
  const double v_correction = call.in(In::v_correction).f[0];
  const double g_factor = call.in(In::g_factor).f[0];
  for (size_t i = 0; i < call.in(In::p).f.size(); ++i) {
    const double p = call.in(In::p).f[i];
    const double m = call.in(In::m).f[i];
    const double v = call.in(In::v).f[i];
    const double g = call.in(In::g).f[i] * g_factor;
    const double m_next = m + a.m_rate * (g - m);
    const double v_next = v + a.v_rate * (g * g - v);
    const double step = m_next * m_correction / (std::sqrt(v_next * v_correction) + a.eps);
    call.out[0].f[i] = p - lr * (a.weight_decay * p + step);
    call.out[1].f[i] = m_next;
    call.out[2].f[i] = v_next;  // out[3], the next gradient, stays 0
  }
  return OkStatus();
}

}  // namespace rullama::reference
