#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::ElementsAre;

TEST(ReduceTest, EntropyInNats) {
  const Tensor y = Eval(OpKind::kEntropy, OpAttrs(OpKind::kEntropy),
                        {F32({4, 2}, {3, 3, -kInf, 0, std::log(0.75), std::log(0.25), kNaN, 0})});
  ExpectValues(y, {std::log(2.0), 0, -0.75 * std::log(0.75) - 0.25 * std::log(0.25), kNaN});
}

TEST(ReduceTest, AlongTheLastDimension) {
  const Tensor x = F32({2, 2, 3}, {1, 2, 3, -1, -2, -3, 0, 0, kInf, 4, kNaN, 9});
  const auto reduce = [&](rl_reduce fn) {
    return Eval(OpKind::kReduce, OpAttrs(rl_reduce_attrs{0, fn}), {x});
  };
  EXPECT_THAT(reduce(RL_REDUCE_SUM).dims, ElementsAre(2, 2, 1));
  ExpectValues(reduce(RL_REDUCE_SUM), {6, -6, kInf, kNaN});
  ExpectValues(reduce(RL_REDUCE_MEAN), {2, -2, kInf, kNaN});
  ExpectValues(reduce(RL_REDUCE_MAX), {3, -1, kInf, kNaN});
}

TEST(ReduceTest, ArgMaxTakesTheLowestOfEqualsAndReadsNaNAsMinusInfinity) {
  const Tensor x = F32({4, 3}, {1, 5, 5, kNaN, -kInf, kNaN, kNaN, -3, kNaN, -kInf, -kInf, -1e300});
  EXPECT_THAT(Eval(OpKind::kArgMax, OpAttrs(OpKind::kArgMax), {x}).i, ElementsAre(1, 0, 1, 2));
}

TEST(ReduceTest, TopKSortsDescendingAndStable) {
  const Tensor x = F32({2, 5}, {1, 3, 2, 3, -kInf, kNaN, 0, -kInf, 0, 7});
  const auto top3 = TryEval(OpKind::kTopK, OpAttrs(rl_topk_attrs{0, 3}), {x});
  ASSERT_TRUE(top3);
  ExpectValues((*top3)[0], {3, 3, 2, 7, 0, 0});
  EXPECT_THAT((*top3)[1].i, ElementsAre(1, 3, 2, 4, 1, 3));
  const auto all = TryEval(OpKind::kTopK, OpAttrs(rl_topk_attrs{0, 5}), {x});
  ASSERT_TRUE(all);
  ExpectValues((*all)[0], {3, 3, 2, 1, -kInf, 7, 0, 0, -kInf, -kInf});
  EXPECT_THAT((*all)[1].i, ElementsAre(1, 3, 2, 0, 4, 4, 1, 3, 0, 2));
}

TEST(ReduceTest, CumSumIsInclusive) {
  ExpectValues(Eval(OpKind::kCumSum, OpAttrs(OpKind::kCumSum), {F32({2, 3}, {1, 2, 3, 4, -4, 1})}),
               {1, 3, 6, 4, 0, 1});
}

TEST(ReduceTest, SoftmaxIsStableAndKnowsEmptyRows) {
  const double e = std::exp(1.0);
  const Tensor x = F32({4, 2}, {1000, 1001, -kInf, 5, -kInf, -kInf, kNaN, 1});
  ExpectValues(Eval(OpKind::kSoftmax, OpAttrs(OpKind::kSoftmax), {x}),
               {1 / (1 + e), e / (1 + e), 0, 1, 0, 0, kNaN, kNaN});
}

}  // namespace
}  // namespace rullama::reference
