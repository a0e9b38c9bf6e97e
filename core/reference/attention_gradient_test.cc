#include <random>

#include "core/reference/differences_test_util.h"
#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

// Five rows of two slots that take turns, of which three are queries; four heads share two kv
// heads.
struct FreshRows {
  rl_mask mask = RL_MASK_CAUSAL;
  int64_t window = 0;
  float scale = 0.7F;
  std::mt19937_64 random{7};  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same numbers each run
  Tensor q = Draw({3, 4, 6});
  Tensor k = Draw({5, 2, 6});
  Tensor v = Draw({5, 2, 6});
  Tensor dy = Draw({3, 4, 6});
  Tensor q_pos = I32({3}, {1, 1, 2});
  Tensor q_slot = I32({3}, {0, 1, 0});
  Tensor kv_pos = I32({5}, {0, 0, 1, 1, 2});
  Tensor kv_slot = I32({5}, {0, 1, 0, 1, 0});

  Tensor Draw(std::vector<int64_t> dims) {
    Tensor tensor = MakeZeros(DType::kF32, std::move(dims));
    std::normal_distribution<double> normal;
    for (double& value : tensor.f) value = normal(random);
    return tensor;
  }

  [[nodiscard]] Tensor Forward() const {
    return Eval(OpKind::kAttention, OpAttrs(rl_attention_attrs{0, mask, window, scale}),
                {q, k, v, std::nullopt, std::nullopt, q_pos, q_slot, kv_pos, kv_slot, std::nullopt,
                 std::nullopt});
  }
  [[nodiscard]] Tensor Stats() const {
    return Eval(OpKind::kAttentionStats, OpAttrs(rl_attention_stats_attrs{0, mask, window, scale}),
                {q, k, q_pos, q_slot, kv_pos, kv_slot});
  }
  [[nodiscard]] Operands Saved() const {
    return {q, k, v, Forward(), Stats(), dy, q_pos, q_slot, kv_pos, kv_slot};
  }
  [[nodiscard]] double Loss() const {
    const Tensor y = Forward();
    double sum = 0;
    for (size_t i = 0; i < y.f.size(); ++i) sum += y.f[i] * dy.f[i];
    return sum;
  }
};

void ExpectDerivatives(FreshRows step) {
  const Tensor dq =
      Eval(OpKind::kAttentionGradQ,
           OpAttrs(rl_attention_grad_q_attrs{0, step.mask, step.window, step.scale}), step.Saved());
  const auto dkv = TryEval(
      OpKind::kAttentionGradKv,
      OpAttrs(rl_attention_grad_kv_attrs{0, step.mask, step.window, step.scale}), step.Saved());
  ASSERT_TRUE(dkv) << dkv.error().ToString();
  const auto loss = [&step] { return step.Loss(); };
  ExpectDerivative(dq, step.q, loss);
  ExpectDerivative((*dkv)[0], step.k, loss);
  ExpectDerivative((*dkv)[1], step.v, loss);
}

TEST(AttentionGradientTest, IsTheDerivativeOfAttention) { ExpectDerivatives({}); }

TEST(AttentionGradientTest, IsTheDerivativeInsideAWindow) { ExpectDerivatives({.window = 2}); }

TEST(AttentionGradientTest, IsTheDerivativeOnACanvas) {
  ExpectDerivatives({.mask = RL_MASK_CANVAS});
}

TEST(AttentionGradientTest, AQueryThatSeesNothingGetsZeros) {
  FreshRows step;
  step.q_slot = I32({3}, {0, 2, 0});
  const Tensor lse = step.Stats();
  for (size_t head = 0; head < 4; ++head) EXPECT_EQ(lse.f[4 + head], 0);
  const Tensor dq =
      Eval(OpKind::kAttentionGradQ,
           OpAttrs(rl_attention_grad_q_attrs{0, RL_MASK_CAUSAL, 0, step.scale}), step.Saved());
  for (size_t i = 24; i < 48; ++i) EXPECT_EQ(dq.f[i], 0);
}

TEST(AttentionGradientTest, KeysThatNoQuerySeesGetZeros) {
  FreshRows step;
  step.kv_pos = I32({5}, {0, 0, 1, 1, 9});
  const Tensor dk =
      Eval(OpKind::kAttentionGradKv,
           OpAttrs(rl_attention_grad_kv_attrs{0, RL_MASK_CAUSAL, 0, step.scale}), step.Saved());
  for (size_t i = 48; i < 60; ++i) EXPECT_EQ(dk.f[i], 0);
}

// attention_mix_rows is the transpose of attention_mix: x . mix(p, v) = v . mix_rows(p, x).
TEST(AttentionGradientTest, MixRowsIsTheTransposeOfMix) {
  FreshRows step;
  const Tensor p = step.Draw({3, 4, 5});
  const Tensor mixed = Eval(OpKind::kAttentionMix, OpAttrs(OpKind::kAttentionMix),
                            {p, step.v, std::nullopt, step.q_slot});
  const Tensor rows =
      Eval(OpKind::kAttentionMixRows, OpAttrs(rl_attention_mix_rows_attrs{0, 2}), {p, step.dy});
  double left = 0;
  double right = 0;
  for (size_t i = 0; i < mixed.f.size(); ++i) left += mixed.f[i] * step.dy.f[i];
  for (size_t i = 0; i < rows.f.size(); ++i) right += rows.f[i] * step.v.f[i];
  EXPECT_NEAR(left, right, 1e-12 * std::abs(left));
}

// The derivative of y[i, j] = x[i, j] weight[e]^T by x is dy weight[e] as stored.
TEST(GroupedMatMulTest, AsStoredIsTheTranspose) {
  FreshRows step;
  const Tensor weight = step.Draw({3, 5, 6});
  const Tensor experts = I32({2, 2}, {2, 0, 1, 2});
  Tensor x = step.Draw({2, 2, 6});
  const Tensor dy = step.Draw({2, 2, 5});
  const Tensor dx =
      Eval(OpKind::kGroupedMatMul, OpAttrs(rl_grouped_matmul_attrs{0, 1}), {dy, weight, experts});
  ExpectDerivative(dx, x, [&] {
    const Tensor y =
        Eval(OpKind::kGroupedMatMul, OpAttrs(OpKind::kGroupedMatMul), {x, weight, experts});
    double sum = 0;
    for (size_t i = 0; i < y.f.size(); ++i) sum += y.f[i] * dy.f[i];
    return sum;
  });
}

}  // namespace
}  // namespace rullama::reference
