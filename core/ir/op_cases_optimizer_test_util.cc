#include <cmath>

#include "core/ir/op_cases_test_util.h"

namespace rullama::test {

std::vector<OpCase> OptimizerCases() {
  const Dim t = Dim::T();
  const TensorType p = F({3, 4});
  const auto adamw = [](float m_rate, float v_rate, float eps, float decay) {
    return Attr(rl_adamw_attrs{0, m_rate, v_rate, eps, decay});
  };
  return {
      {{OpKind::kGradAccumulate,
        OpAttrs(rl_grad_accumulate_attrs{0, 2.0F}),
        {F({3, 4}), F({t, 3}), F({t, 4})}},
       {F({3, 4})},
       {{Attr(rl_grad_accumulate_attrs{0, INFINITY}), "factor is not finite"},
        {Operand(0, F({4, 3})), "operand g is f32[4,3], expected f32[3,4]"},
        {Operand(1, F({t, 2, 3})), "expected rank 2"},
        {Operand(2, F({Dim::R(), 4})), "a is f32[T,3] and b f32[R,4]"}}},
      {{OpKind::kAdamW,
        OpAttrs(rl_adamw_attrs{0, 0.1F, 0.001F, 1e-8F, 0.01F}),
        {p, p, p, p, F({1}), F({1}), F({1}), F({1})}},
       {p, p, p, p},
       {{adamw(0.0F, 0.001F, 1e-8F, 0.01F), "m_rate or v_rate is 0, expected 0 < rate <= 1"},
        {adamw(0.1F, NAN, 1e-8F, 0.01F), "m_rate or v_rate is nan"},
        {adamw(0.1F, 0.001F, -1.0F, 0.01F), "eps is -1, expected a finite number >= 0"},
        {adamw(0.1F, 0.001F, 1e-8F, -1.0F), "weight_decay is -1, expected a finite number >= 0"},
        {Operand(0, {DType::kF16, {3, 4}}), "operand p is f16[3,4], expected f32"},
        {Operand(2, F({4, 3})), "operand v is f32[4,3], expected f32[3,4]"},
        {Operand(4, F({2})), "operand lr is f32[2], expected f32[1]"}}},
  };
}

}  // namespace rullama::test
