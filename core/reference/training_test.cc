// Derivatives against central differences of the ops they belong to, and the edges of the losses.
#include <functional>
#include <random>

#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::HasSubstr;

// Uniform numbers in [low, high) from a seed.
Tensor Uniform(std::vector<int64_t> dims, uint64_t seed, double low = -2, double high = 2) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> draw(low, high);
  Tensor tensor = MakeZeros(DType::kF32, std::move(dims));
  for (double& value : tensor.f) value = draw(random);
  return tensor;
}

// Expects `dx` to be the derivative of sum(dy * forward(x)) by x: central differences with a step
// of 1e-5, whose own error is below 1e-9 for functions of order one.
void ExpectDerivative(const std::function<Tensor(const Tensor&)>& forward, const Tensor& x,
                      const Tensor& dy, const Tensor& dx) {
  constexpr double kStep = 1e-5;
  constexpr double kRelative = 1e-6;
  ASSERT_EQ(dx.dims, x.dims);
  double largest = 0;
  for (const double value : dx.f) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 1e-3) << "a derivative of zero shows nothing";
  for (size_t i = 0; i < x.f.size(); ++i) {
    double difference = 0;
    for (const double sign : {1.0, -1.0}) {
      Tensor moved = x;
      moved.f[i] += sign * kStep;
      const Tensor y = forward(moved);
      ASSERT_EQ(y.f.size(), dy.f.size());
      for (size_t j = 0; j < y.f.size(); ++j) difference += sign * dy.f[j] * y.f[j];
    }
    EXPECT_NEAR(dx.f[i], difference / (2 * kStep), kRelative * largest) << "element " << i;
  }
}

TEST(TrainingTest, CrossEntropyGrad) {
  const Tensor logits = Uniform({3, 7}, 1);
  const Tensor targets = I32({3}, {2, -1, 6});
  const Tensor factor = F32({1}, {0.3});
  const Tensor dlogits = Eval(OpKind::kCrossEntropyGrad, OpAttrs(OpKind::kCrossEntropyGrad),
                              {logits, targets, factor});
  ExpectDerivative(
      [&](const Tensor& z) {
        return Eval(OpKind::kCrossEntropy, OpAttrs(OpKind::kCrossEntropy), {z, targets});
      },
      logits, F32({3}, {0.3, 0.3, 0.3}), dlogits);
}

TEST(TrainingTest, LinearCrossEntropy) {
  const Tensor x = Uniform({3, 5}, 2);
  const Tensor weight = Uniform({7, 5}, 3);
  const Tensor targets = I32({3}, {2, 7, 0});
  for (const float cap : {0.0F, 3.0F}) {
    SCOPED_TRACE(cap);
    const OpAttrs attrs(rl_linear_cross_entropy_attrs{0, cap});
    const Operands operands = {x, weight, targets, F32({1}, {0.3})};
    const auto results = TryEval(OpKind::kLinearCrossEntropy, attrs, operands);
    ASSERT_TRUE(results) << results.error().ToString();
    const auto loss = [&](const Tensor& moved) {
      Tensor logits = Eval(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}), {moved, weight});
      if (cap > 0) {
        logits = Eval(OpKind::kSoftcap, OpAttrs(rl_softcap_attrs{0, cap}), {logits});
      }
      return Eval(OpKind::kCrossEntropy, OpAttrs(OpKind::kCrossEntropy), {logits, targets});
    };
    ExpectValues((*results)[0], loss(x).f);
    ExpectDerivative(loss, x, F32({3}, {0.3, 0.3, 0.3}), (*results)[1]);
  }
}

TEST(TrainingTest, SoftmaxGrad) {
  const auto softmax = [](const Tensor& x) {
    return Eval(OpKind::kSoftmax, OpAttrs(OpKind::kSoftmax), {x});
  };
  const Tensor x = Uniform({2, 2, 5}, 4);
  const Tensor dy = Uniform({2, 2, 5}, 5);
  ExpectDerivative(softmax, x, dy,
                   Eval(OpKind::kSoftmaxGrad, OpAttrs(OpKind::kSoftmaxGrad), {softmax(x), dy}));
}

TEST(TrainingTest, SoftmaxGradLeavesOutColumnsWithoutMass) {
  ExpectValues(Eval(OpKind::kSoftmaxGrad, OpAttrs(OpKind::kSoftmaxGrad),
                    {F32({3, 3}, {0.5, 0, 0.5, 0, 0, 0, 0, 1, 0}),
                     F32({3, 3}, {1, kNaN, 3, kNaN, kInf, 1, -kInf, 5, 1})}),
               {-0.5, 0, 0.5, 0, 0, 0, 0, 0, 0});
}

TEST(TrainingTest, RmsNormGrad) {
  const Tensor x = Uniform({2, 3, 5}, 6);
  const Tensor dy = Uniform({2, 3, 5}, 7);
  for (const std::optional<Tensor>& weight :
       {std::optional<Tensor>(), std::optional(Uniform({5}, 8))}) {
    ExpectDerivative(
        [&](const Tensor& moved) {
          return Eval(OpKind::kRmsNorm, OpAttrs(rl_rms_norm_attrs{0, 0.25F}), {moved, weight});
        },
        x, dy,
        Eval(OpKind::kRmsNormGrad, OpAttrs(rl_rms_norm_grad_attrs{0, 0.25F}), {x, dy, weight}));
  }
}

TEST(TrainingTest, GeGluGrad) {
  const Tensor gate = Uniform({2, 9}, 9, -4, 4);
  const Tensor up = Uniform({2, 9}, 10);
  const Tensor dy = Uniform({2, 9}, 11);
  const auto geglu = [](const Tensor& a, const Tensor& b) {
    return Eval(OpKind::kGeGlu, OpAttrs(OpKind::kGeGlu), {a, b});
  };
  const auto results = TryEval(OpKind::kGeGluGrad, OpAttrs(OpKind::kGeGluGrad), {gate, up, dy});
  ASSERT_TRUE(results) << results.error().ToString();
  ExpectDerivative([&](const Tensor& moved) { return geglu(moved, up); }, gate, dy, (*results)[0]);
  ExpectDerivative([&](const Tensor& moved) { return geglu(gate, moved); }, up, dy, (*results)[1]);
}

TEST(TrainingTest, GeluTanhGrad) {
  const auto unary = [](rl_unary fn, const Tensor& x) {
    return Eval(OpKind::kUnary, OpAttrs(rl_unary_attrs{0, fn}), {x});
  };
  const Tensor x = Uniform({4, 8}, 12, -11, 11);
  ExpectDerivative([&](const Tensor& moved) { return unary(RL_UNARY_GELU_TANH, moved); }, x,
                   F32({4, 8}, std::vector<double>(32, 1)), unary(RL_UNARY_GELU_TANH_GRAD, x));
  ExpectValues(unary(RL_UNARY_GELU_TANH_GRAD, F32({6}, {11, -11, 1e200, -1e200, kInf, -kInf})),
               {1, 0, 1, 0, 1, 0});
}

TEST(TrainingTest, RopeBackIsItsDerivative) {
  const Tensor pos = I32({3}, {0, 5, 77});
  const Tensor factors = F32({2}, {1, 3});
  const auto rope = [&](const Tensor& x, int32_t inverse) {
    return Eval(OpKind::kRope, OpAttrs(rl_rope_attrs{0, 100.0F, 4, inverse, 0}), {x, pos, factors});
  };
  const Tensor x = Uniform({3, 2, 6}, 13);
  const Tensor dy = Uniform({3, 2, 6}, 14);
  ExpectDerivative([&](const Tensor& moved) { return rope(moved, 0); }, x, dy, rope(dy, 1));
  ExpectValues(rope(rope(x, 0), 1), x.f);
}

TEST(TrainingTest, ScatterRows) {
  const Tensor rows = I32({4}, {4, 1, 1, 0});
  const auto scatter = [](const Tensor& x, const Tensor& to) {
    return TryEval(OpKind::kScatterRows, OpAttrs(OpKind::kScatterRows), {x, to}, 5);
  };
  const Tensor dy = Uniform({4, 2, 3}, 15);
  const auto dx = scatter(dy, rows);
  ASSERT_TRUE(dx) << dx.error().ToString();
  ExpectDerivative(
      [&](const Tensor& moved) {
        return Eval(OpKind::kGatherRows, OpAttrs(OpKind::kGatherRows), {moved, rows});
      },
      Uniform({5, 2, 3}, 16), dy, (*dx)[0]);
  EXPECT_THAT(scatter(dy, I32({4}, {0, 1, 5, 2})).error().ToString(),
              HasSubstr("row 5 of element 2 is outside the 5 rows of the step"));
  EXPECT_FALSE(scatter(dy, I32({4}, {0, -1, 1, 2})));
}

TEST(TrainingTest, ScatterLast) {
  const Tensor index = I32({3}, {4, 0, 2});
  const OpAttrs attrs(rl_scatter_last_attrs{0, 5});
  const Tensor x = Uniform({3, 5}, 17);
  const Tensor dy = Uniform({3}, 18);
  ExpectDerivative(
      [&](const Tensor& moved) {
        return Eval(OpKind::kGatherLast, OpAttrs(OpKind::kGatherLast), {moved, index});
      },
      x, dy, Eval(OpKind::kScatterLast, attrs, {dy, index}));
  const auto topk = [](const Tensor& moved) {
    return *TryEval(OpKind::kTopK, OpAttrs(rl_topk_attrs{0, 2}), {moved});
  };
  const Tensor dvalues = Uniform({3, 2}, 19);
  ExpectDerivative([&](const Tensor& moved) { return topk(moved)[0]; }, x, dvalues,
                   Eval(OpKind::kScatterLast, attrs, {dvalues, topk(x)[1]}));
}

TEST(TrainingTest, ScatterLastAddsUpAndLeavesOutNegativeIndices) {
  const OpAttrs attrs(rl_scatter_last_attrs{0, 3});
  const Tensor x = F32({2, 3}, {1, 2, 4, 8, 16, 32});
  ExpectValues(Eval(OpKind::kScatterLast, attrs, {x, I32({2, 3}, {1, 1, 0, -1, 2, -7})}),
               {4, 3, 0, 0, 0, 16});
  EXPECT_THAT(EvalError(OpKind::kScatterLast, attrs, {x, I32({2, 3}, {0, 1, 2, 0, 1, 3})}),
              HasSubstr("index 3 of row 1 is outside the 3 columns"));
}

TEST(TrainingTest, Pad) {
  const Tensor x = Uniform({2, 5, 3}, 20);
  const Tensor dy = Uniform({2, 2, 3}, 21);
  ExpectDerivative(
      [](const Tensor& moved) {
        return Eval(OpKind::kSlice, OpAttrs(rl_slice_attrs{0, 1, 1, 2}), {moved});
      },
      x, dy, Eval(OpKind::kPad, OpAttrs(rl_pad_attrs{0, 1, 1, 2}), {dy}));
  const Tensor y = Eval(OpKind::kPad, OpAttrs(rl_pad_attrs{0, 1, 0, 1}), {I32({2, 1}, {7, 8})});
  EXPECT_THAT(y.i, ::testing::ElementsAre(7, 0, 8, 0));
}

TEST(TrainingTest, SumSquares) {
  ExpectValues(
      Eval(OpKind::kSumSquares, OpAttrs(OpKind::kSumSquares), {F32({2, 1, 2}, {1, -2, 3, 0.5})}),
      {14.25});
}

TEST(TrainingTest, CrossEntropyAtItsEdges) {
  const Tensor logits =
      F32({7, 3}, {1e30, 1e30,  -1e30, 0,     -kInf, 1,    -kInf, -kInf, -kInf, kNaN, kNaN,
                   kInf, -kInf, kNaN,  -kInf, -kInf, kNaN, -kInf, kInf,  0,     1});
  const Tensor targets = I32({7}, {0, 1, 2, 3, 0, -5, 2});
  ExpectValues(Eval(OpKind::kCrossEntropy, OpAttrs(OpKind::kCrossEntropy), {logits, targets}),
               {std::log(2.0), kInf, kInf, 0, kNaN, 0, kNaN});
  const Tensor grad = Eval(OpKind::kCrossEntropyGrad, OpAttrs(OpKind::kCrossEntropyGrad),
                           {logits, targets, F32({1}, {2})});
  const double e = std::exp(1.0);
  ExpectValues(grad, {-1,          1,    0,  // 2 (softmax - onehot)
                      2 / (1 + e), -2,   2 * e / (1 + e),
                      0,           0,    -2,  // a row without mass
                      0,           0,    0,   // does not count
                      kNaN,        kNaN, kNaN,
                      0,           0,    0,  // does not count
                      kNaN,        kNaN, kNaN});
}

}  // namespace
}  // namespace rullama::reference
