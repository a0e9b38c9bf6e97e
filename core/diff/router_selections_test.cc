#include "core/diff/router_selections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/ir/builder.h"
#include "core/ir/verify.h"

namespace rullama {
namespace {

using ::testing::DoubleNear;

const RouterSelection kTwoOfFour{"scores", "chosen", 4, 2};

// Scores, the two largest of them, and a value of each kind made from these.
Graph Choosing() {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId scores = b.Add(ops::Affine{.x = x, .scale = 2, .bias = 0}, "scores");
  const auto chosen = b.Add(ops::TopK{.x = scores, .k = 2}, "chosen");
  b.Output("weights", b.Add(ops::Softmax{chosen.values}, "weights"), RowDemand::kAll);
  b.Output("experts", chosen.indices, RowDemand::kAll);
  b.Output("numbers", b.Add(ops::Cast{.x = chosen.indices, .dtype = DType::kF32}, "numbers"),
           RowDemand::kAll);
  auto graph = std::move(b).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *std::move(graph);
}

TEST(RouterSelectionsTest, AreTheTopKsOfTheStep) {
  const Graph graph = Choosing();
  const std::vector<RouterSelection> selections = RouterSelections(graph);
  ASSERT_EQ(selections.size(), 1U);
  EXPECT_EQ(selections[0].scores, "scores");
  EXPECT_NE(graph.Find(selections[0].indices), kNoValue);
  EXPECT_EQ(selections[0].columns, 4);
  EXPECT_EQ(selections[0].count, 2);
}

TEST(RouterSelectionsTest, GivenOnesAreInputs) {
  const Graph before = Choosing();
  const std::string name = RouterSelections(before)[0].indices;
  const Graph graph = WithPinnedValues(before, {name, "no such value"});
  const Status valid = Verify(graph);
  EXPECT_TRUE(valid) << valid.error().ToString();
  EXPECT_EQ(graph.value(graph.Find(name)).lifetime, Lifetime::kInput);
  EXPECT_EQ(graph.outputs[1].value, graph.Find(name + ".computed"));
  EXPECT_EQ(graph.value(graph.Find(name + ".computed")).lifetime, Lifetime::kTransient);
  EXPECT_EQ(graph.ops.back().inputs[0], graph.Find(name));
  EXPECT_EQ(graph.ops.size(), before.ops.size());
}

TEST(RouterSelectionsTest, TheLargestInOrderHaveNoGap) {
  const std::vector<float> scores = {1, 4, 3, 2, 5, 5, 0, 1};
  const SelectionError error = CompareSelection(std::vector<float>{1, 2, 0, 1}, scores, kTwoOfFour);
  EXPECT_EQ(error.rows, 0);
  EXPECT_EQ(error.gap, 0);
}

TEST(RouterSelectionsTest, GapIsByHowMuchABetterOneWasPassedOver) {
  const std::vector<float> scores = {1, 4, 3, 2};
  const double size = std::sqrt((1 + 16 + 9 + 4) / 4.0);
  // 2 in place of 3; both the other way around; 1 in place of 4.
  const struct {
    std::vector<float> chosen;
    double gap;
  } cases[] = {{{1, 3}, 1}, {{2, 1}, 1}, {{0, 1}, 3}};
  for (const auto& [chosen, gap] : cases) {
    const SelectionError error = CompareSelection(chosen, scores, kTwoOfFour);
    EXPECT_EQ(error.rows, 1);
    EXPECT_THAT(error.gap, DoubleNear(gap / size, 1e-12));
  }
}

TEST(RouterSelectionsTest, IndicesThatAreNoneAreInfinitelyWrong) {
  const std::vector<float> scores = {1, 4, 3, 2};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& chosen : {std::vector<float>{1, 1}, {1, 4}, {-1, 1}, {1, nan}}) {
    EXPECT_TRUE(std::isinf(CompareSelection(chosen, scores, kTwoOfFour).gap));
  }
}

}  // namespace
}  // namespace rullama
