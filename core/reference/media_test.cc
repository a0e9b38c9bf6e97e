// The ops of pictures and sound, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

TEST(MediaTest, ClampKeepsNan) {
  ExpectValues(Eval(OpKind::kClamp, OpAttrs(rl_clamp_attrs{0, -1.0F, 2.0F}),
                    {F32({1, 4}, {-3, 0.5, 7, kNaN})}),
               {-1, 0.5, 2, kNaN});
  ExpectValues(Eval(OpKind::kClamp, OpAttrs(rl_clamp_attrs{0, 0.0F, HUGE_VALF}),
                    {F32({1, 2}, {-3, 178000})}),
               {0, 178000});
}

TEST(MediaTest, VectorsAreAddedToEachRow) {
  ExpectValues(Eval(OpKind::kAddVector, OpAttrs(OpKind::kAddVector),
                    {F32({2, 1, 2}, {1, 2, 3, 4}), F32({2}, {10, 20})}),
               {11, 22, 13, 24});
}

TEST(MediaTest, RowsOfAGroupAreJoinedOrAveraged) {
  const Tensor x = F32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor folded = Eval(OpKind::kFoldRows, OpAttrs(rl_fold_rows_attrs{0, 2}), {x});
  EXPECT_THAT(folded.dims, ::testing::ElementsAre(2, 4));
  ExpectValues(folded, {1, 2, 3, 4, 5, 6, 7, 8});
  ExpectValues(Eval(OpKind::kMeanRows, OpAttrs(rl_mean_rows_attrs{0, 2}), {x}), {2, 3, 6, 7});
}

TEST(MediaTest, LayerNormIsOfTheDifferencesToTheMean) {
  // The mean is 3, the variance 4.
  const OpAttrs attrs(rl_layer_norm_attrs{0, 0.0F});
  const Tensor x = F32({1, 2}, {1, 5});
  const Tensor weight = F32({2}, {10, 100});
  ExpectValues(Eval(OpKind::kLayerNorm, attrs, {x, weight, std::nullopt}), {-10, 100});
  ExpectValues(Eval(OpKind::kLayerNorm, attrs, {x, weight, F32({2}, {1, 2})}), {-9, 102});
}

// Two channels of a picture of 2 x 4, patches of 3 x 3 with stride 2.
TEST(MediaTest, PatchesHaveChannelRowColumnOrderAndZerosAround) {
  std::vector<double> x(16);
  for (size_t i = 0; i < 8; ++i) {
    x[2 * i] = static_cast<double>(i + 1);
    x[2 * i + 1] = 10 * x[2 * i];
  }
  const Tensor y = Eval(OpKind::kIm2Col, OpAttrs(rl_im2col_attrs{0, 3, 2}), {F32({2, 4, 2}, x)});
  EXPECT_THAT(y.dims, ::testing::ElementsAre(2, 18));
  ExpectValues(y, {0, 0, 0, 0, 1, 2, 0, 5, 6, 0, 0, 0, 0,  10, 20, 0,  50, 60,
                   0, 0, 0, 2, 3, 4, 6, 7, 8, 0, 0, 0, 20, 30, 40, 60, 70, 80});
}

TEST(MediaTest, CausalConvolutionLooksBack) {
  // The last weight of a column is that of the row itself.
  ExpectValues(Eval(OpKind::kCausalConv1d, OpAttrs(OpKind::kCausalConv1d),
                    {F32({3, 2}, {1, 10, 2, 20, 3, 30}), F32({2, 2}, {0.5, 1, 0, 2})}),
               {1, 20, 2.5, 40, 4, 60});
}

TEST(MediaTest, LocalAttentionSeesTheLastRowsWithAKeyForEachDistance) {
  const Tensor q = F32({3, 1, 1}, {1, 1, 2});
  const Tensor k = F32({3, 1, 1}, {5, 0.25, -0.5});
  const Tensor v = F32({3, 1, 1}, {10, 20, 30});
  const Tensor rel = F32({2, 1, 1}, {0.5, 0.75});
  const auto mix = [](double own, double before, double own_value, double value) {
    const double share = 1 / (1 + std::exp(before - own));
    return share * own_value + (1 - share) * value;
  };
  ExpectValues(
      Eval(OpKind::kLocalAttention, OpAttrs(rl_local_attention_attrs{0, 0.0F}), {q, k, v, rel}),
      {10, mix(0.75, 5.75, 20, 10), mix(0, 2, 30, 20)});
  const auto capped = [](double score) { return 2 * std::tanh(score / 2); };
  ExpectValues(
      Eval(OpKind::kLocalAttention, OpAttrs(rl_local_attention_attrs{0, 2.0F}), {q, k, v, rel}),
      {10, mix(capped(0.75), capped(5.75), 20, 10), mix(0, capped(2), 30, 20)});
}

}  // namespace
}  // namespace rullama::reference
