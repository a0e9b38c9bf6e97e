#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

TEST(GradAccumulateTest, AddsAProductOverTheRows) {
  const Tensor g = F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor a = F32({2, 2}, {1, 2, 3, 4});
  const Tensor b = F32({2, 3}, {1, 0, -1, 2, 1, 0});
  // a^T b = {1 + 6, 3, -1}, {2 + 8, 4, -2}.
  ExpectValues(Eval(OpKind::kGradAccumulate, OpAttrs(rl_grad_accumulate_attrs{0, 0.5F}), {g, a, b}),
               {1 + 3.5, 2 + 1.5, 3 - 0.5, 4 + 5, 5 + 2, 6 - 1});
}

struct Adam {
  Tensor p, m, v, g;
};

// A step with the settings of the training specification; t counts from 1.
Adam StepOf(const Adam& from, double lr, int t, double g_factor = 1) {
  const auto number = [](double value) { return F32({1}, {value}); };
  auto next =
      TryEval(OpKind::kAdamW, OpAttrs(rl_adamw_attrs{0, 0.1F, 0.001F, 1e-8F, 0.01F}),
              {from.p, from.m, from.v, from.g, number(lr), number(1 / (1 - std::pow(0.9, t))),
               number(1 / (1 - std::pow(0.999, t))), number(g_factor)});
  if (!next) {
    ADD_FAILURE() << next.error().ToString();
    return from;
  }
  return {(*next)[0], (*next)[1], (*next)[2], (*next)[3]};
}

// Attributes are floats: 0.1F is 0.1 to within 1.5e-9.
constexpr double kFloat = 2e-7;

TEST(AdamWTest, TheFirstStepHasTheSizeOfTheLearningRate) {
  const Tensor zeros = F32({3}, {0, 0, 0});
  const Adam next =
      StepOf({F32({3}, {1, -2, 3}), zeros, zeros, F32({3}, {0.5, -1e-3, 0})}, 1e-3, 1);
  // m / (1 - b1) = g and v / (1 - b2) = g^2, so the step is lr (wd p + sign of g).
  const double expected[] = {1 - 1e-3 * (0.01 + 1), -2 - 1e-3 * (-0.02 - 1), 3 - 1e-3 * 0.03};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(next.p.f[i], expected[i], 1e-3 * 2e-5);
  ExpectValues(next.g, {0, 0, 0});
}

TEST(AdamWTest, FollowsTheFormulaForTwentySteps) {
  Adam state{F32({2}, {0.3, -0.2}), F32({2}, {0, 0}), F32({2}, {0, 0}), F32({2}, {0, 0})};
  double p[] = {0.3, -0.2};
  double m[] = {0, 0};
  double v[] = {0, 0};
  for (int t = 1; t <= 20; ++t) {
    const double factor = t % 3 == 0 ? 0.25 : 1;
    const double lr = 1e-2 / t;
    for (size_t i = 0; i < 2; ++i) {
      const double raw = std::sin(t * (1.0 + static_cast<double>(i))) + p[i];
      state.g.f[i] = raw;
      const double g = raw * factor;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, t));
      const double v_hat = v[i] / (1 - std::pow(0.999, t));
      p[i] -= lr * (0.01 * p[i] + m_hat / (std::sqrt(v_hat) + 1e-8));
    }
    state = StepOf(state, lr, t, factor);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(state.p.f[i], p[i], kFloat);
      EXPECT_NEAR(state.m.f[i], m[i], kFloat);
      EXPECT_NEAR(state.v.f[i], v[i], kFloat);
    }
  }
}

}  // namespace
}  // namespace rullama::reference
