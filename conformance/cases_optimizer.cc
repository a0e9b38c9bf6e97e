// Cases of gradient sums and of the optimizer.
#include <cmath>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

// Gradients of the matrices of an adapter, which are wide or tall, and of single numbers.
void AddGradAccumulate(std::vector<CaseSpec>& cases) {
  struct GradientShape {
    int64_t m, n, t;
  };
  for (const auto [m, n, t] :
       {GradientShape{16, 300, 1}, GradientShape{16, 300, 7}, GradientShape{300, 8, 40},
        GradientShape{3, 67, 150}, GradientShape{1, 1, 9}}) {
    cases.push_back({fmt::format("grad_accumulate/m{}_n{}_t{}", m, n, t), OpKind::kGradAccumulate,
                     [m = m, n = n, t = t](uint64_t seed) {
                       CaseBuilder b(seed, t);
                       const ValueId g = b.State("g", F({m, n}));
                       const ValueId left = b.Floats("a", F({kT, m}));
                       const ValueId right = b.Floats("b", F({kT, n}));
                       return OneOp(std::move(b), OpKind::kGradAccumulate, {g, left, right},
                                    OpAttrs(rl_grad_accumulate_attrs{0, 0.37F}),
                                    ToleranceClass::kContraction);
                     }});
  }
}

struct AdamStep {
  const char* name;
  TensorType type;
  double step;
  double clip;  // of the gradient
};

void AddAdamW(std::vector<CaseSpec>& cases) {
  static const AdamStep kSteps[] = {{"first", F({16, 300}), 1, 1},
                                    {"later", F({70, 8}), 400, 0.01},
                                    {"vector", F({5}), 3, 1},
                                    {"rank_4", F({2, 3, 4, 5}), 3, 0}};
  for (const AdamStep& step : kSteps) {
    cases.push_back({fmt::format("adamw/{}", step.name), OpKind::kAdamW, [&step](uint64_t seed) {
                       CaseBuilder b(seed, 1);
                       const auto number = [&b](const char* name, double value) {
                         return b.Floats(name, F({1}), std::vector<double>{value});
                       };
                       // In the first step the moments are 0.
                       const double old = step.step > 1 ? 1 : 0;
                       const ValueId p = b.State("p", step.type);
                       const ValueId m = b.State("m", step.type, -old, old);
                       const ValueId v = b.State("v", step.type, 0.01 * old, old);
                       const ValueId g = b.State("g", step.type);
                       const ValueId lr = number("lr", 1e-2);
                       const ValueId m_correction =
                           number("m_correction", 1 / (1 - std::pow(0.9, step.step)));
                       const ValueId v_correction =
                           number("v_correction", 1 / (1 - std::pow(0.999, step.step)));
                       const ValueId clip = number("g_factor", step.clip);
                       return OneOp(std::move(b), OpKind::kAdamW,
                                    {p, m, v, g, lr, m_correction, v_correction, clip},
                                    OpAttrs(rl_adamw_attrs{0, 0.1F, 0.001F, 1e-8F, 0.01F}),
                                    ToleranceClass::kRounding);
                     }});
  }
}

}  // namespace

void AddOptimizerCases(std::vector<CaseSpec>& cases) {
  AddGradAccumulate(cases);
  AddAdamW(cases);
}

}  // namespace rullama::conformance
