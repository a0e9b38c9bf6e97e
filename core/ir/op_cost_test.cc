#include "core/ir/op_cost.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/ir/builder.h"
#include "core/ir/op_cases_test_util.h"

namespace rullama {
namespace {

using test::F;
using test::I;
using test::kT;

// A graph whose last op is looked at.
class OpCostTest : public ::testing::Test {
 protected:
  OpCost Cost(ValueId y, StepForCost step) {
    builder_.Output("y", y, RowDemand::kAll);
    const auto graph = std::move(builder_).Finish();
    EXPECT_TRUE(graph) << graph.error().ToString();
    return CostOf(*graph, graph->ops.back(), step);
  }

  GraphBuilder builder_{"g"};
};

TEST_F(OpCostTest, AProductReadsItsWeightInItsType) {
  const ValueId x = builder_.Input("x", F({kT, 64}));
  const ValueId weight = builder_.Constant("weight", {DType::kQ8_0, {10, 64}});
  const OpCost cost = Cost(builder_.Add(ops::Linear(x, weight)), {{3, 1}});
  // Two blocks of 34 bytes in each of 10 rows; 3 rows of 64 numbers, and 3 of 10.
  EXPECT_EQ(cost.bytes, 10 * 2 * 34 + 3 * 64 * 4 + 3 * 10 * 4);
  EXPECT_EQ(cost.stored_bytes, 10 * 2 * 34);
  EXPECT_EQ(cost.operations, 2 * 3 * 10 * 64);
}

TEST_F(OpCostTest, ATableIsReadWhereRowsAreGathered) {
  const ValueId table = builder_.Constant("table", {DType::kQ8_0, {1000, 32}});
  const ValueId ids = builder_.Input("ids", I({kT}));
  const OpCost cost = Cost(builder_.Add(ops::GatherRows{.table = table, .ids = ids}), {{5, 1}});
  EXPECT_DOUBLE_EQ(cost.bytes, 5 * 34 + 5 * 4 + 5 * 32 * 4);
  EXPECT_EQ(cost.operations, 0);
}

TEST_F(OpCostTest, ExpertsAreReadOnceAndAtMostAll) {
  constexpr int64_t kExperts = 4, kUsed = 2, kWidth = 8, kInner = 6;
  const auto cost_of = [&](int64_t rows) {
    GraphBuilder b("g");
    const ValueId x = b.Input("x", F({kT, kWidth}));
    const ValueId weights = b.Input("weights", F({kT, kUsed}));
    const ValueId experts = b.Input("experts", I({kT, kUsed}));
    const ValueId gate = b.Constant("gate", F({kExperts, kInner, kWidth}));
    const ValueId up = b.Constant("up", F({kExperts, kInner, kWidth}));
    const ValueId down = b.Constant("down", F({kExperts, kWidth, kInner}));
    b.Output("y",
             b.Add(ops::MoeFfn{.x = x,
                               .weights = weights,
                               .experts = experts,
                               .gate_weight = gate,
                               .up_weight = up,
                               .down_weight = down}),
             RowDemand::kAll);
    const auto graph = std::move(b).Finish();
    EXPECT_TRUE(graph) << graph.error().ToString();
    return CostOf(*graph, graph->ops.back(), {{rows, 1}});
  };
  constexpr double kExpert = 3 * kInner * kWidth;
  // x, weights and experts of a row, and y.
  constexpr double kRow = (kWidth + kUsed + kUsed + kWidth) * 4;
  EXPECT_DOUBLE_EQ(cost_of(1).bytes, 2 * kExpert * 4 + kRow);
  EXPECT_DOUBLE_EQ(cost_of(1).operations, 2 * 2 * kExpert);
  EXPECT_DOUBLE_EQ(cost_of(10).bytes, 4 * kExpert * 4 + 10 * kRow);
  EXPECT_DOUBLE_EQ(cost_of(10).operations, 10 * 2 * 2 * kExpert);
}

// Two query heads on one key head of 8 numbers, a cache of 2 slots with 16 rows.
class AttentionCostTest : public OpCostTest {
 protected:
  OpCost Cost(int64_t window, const std::vector<int32_t>& pos, const std::vector<int32_t>& slot) {
    ops::Attention op;
    op.q = builder_.Input("q", F({kT, 2, 8}));
    op.k_new = builder_.Input("k", F({kT, 1, 8}));
    op.v_new = builder_.Input("v", F({kT, 1, 8}));
    op.q_pos = op.q_slot = op.kv_pos = op.kv_slot = builder_.Input("rows", I({kT}));
    op.k_state = builder_.State("k_state", F({2, 16, 1, 8}));
    op.v_state = builder_.State("v_state", F({2, 16, 1, 8}));
    op.past = builder_.Input("past", I({2}));
    op.window = window;
    op.scale = 1;
    StepForCost step{{static_cast<int64_t>(pos.size()), 1}, pos, slot};
    return OpCostTest::Cost(builder_.Add(op, "y"), step);
  }
  // q, k, v, y, the four row operands and past.
  static double BytesOfStep(double rows) { return rows * (16 + 8 + 8 + 16 + 4) * 4 + 2 * 4; }
  // An old row in both caches.
  static constexpr double kOldRow = 2 * 8 * 4;
  // Scores and mix of a visible key, for both heads.
  static constexpr double kPair = 2 * 2 * 2 * 8;
};

TEST_F(AttentionCostTest, RowsSeeWhatIsBeforeThem) {
  const OpCost cost = Cost(0, {5, 6}, {0, 0});
  EXPECT_DOUBLE_EQ(cost.bytes, BytesOfStep(2) + 5 * kOldRow);
  EXPECT_DOUBLE_EQ(cost.operations, (6 + 7) * kPair);
}

TEST_F(AttentionCostTest, AWindowEndsWhatTheySee) {
  const OpCost cost = Cost(4, {5, 6}, {0, 0});
  EXPECT_DOUBLE_EQ(cost.bytes, BytesOfStep(2) + 3 * kOldRow);
  EXPECT_DOUBLE_EQ(cost.operations, (4 + 4) * kPair);
}

TEST_F(AttentionCostTest, SlotsDoNotSeeEachOther) {
  const OpCost cost = Cost(0, {5, 2}, {0, 1});
  EXPECT_DOUBLE_EQ(cost.bytes, BytesOfStep(2) + (5 + 2) * kOldRow);
  EXPECT_DOUBLE_EQ(cost.operations, (6 + 3) * kPair);
}

// As in the tower for pictures, which has nine patches for each of its T tokens.
TEST_F(OpCostTest, RowsOfAStepMayBeMoreThanItsTokens) {
  const Dim patches(0, 9, 0);
  ops::Attention op;
  op.q = op.k_new = op.v_new = builder_.Input("q", F({patches, 2, 8}));
  op.q_pos = op.q_slot = op.kv_pos = op.kv_slot = builder_.Input("rows", I({patches}));
  op.mask = RL_MASK_CANVAS;
  op.scale = 1;
  const OpCost cost = Cost(builder_.Add(op, "y"), {{4, 1}, {}, {}});
  EXPECT_DOUBLE_EQ(cost.operations, 36 * 36 * 2 * 2 * 2 * 8);
}

TEST_F(OpCostTest, AnAppendMovesItsRows) {
  const ValueId state = builder_.State("state", {DType::kF16, {2, 16, 1, 8}});
  const ValueId rows = builder_.Input("rows", {DType::kF16, {kT, 1, 8}});
  const ValueId index = builder_.Input("index", I({kT}));
  const ValueId next =
      builder_.Add(ops::StateAppend{.state = state, .rows = rows, .pos = index, .slot = index});
  builder_.Output("y", builder_.Add(ops::Copy{.x = rows}), RowDemand::kAll);
  const auto graph = std::move(builder_).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  const OpCost cost = CostOf(*graph, graph->ops[graph->value(next).producer], {{3, 1}});
  EXPECT_DOUBLE_EQ(cost.bytes, 3 * (8 * 2 + 4 + 4) + 3 * 8 * 2);
  EXPECT_EQ(cost.operations, 0);
}

// norm = rms_norm(x), y = norm weight^T, z = -norm.
TEST_F(OpCostTest, AGroupDoesNotMoveWhatStaysInside) {
  const ValueId x = builder_.Input("x", F({kT, 8}));
  const ValueId norm = builder_.Add(ops::RmsNorm{.x = x, .eps = 1}, "norm");
  const ValueId weight = builder_.Constant("weight", F({6, 8}));
  builder_.Output("y", builder_.Add(ops::Linear(norm, weight), "y"), RowDemand::kAll);
  builder_.Output("z", builder_.Add(ops::Unary{.x = norm, .fn = RL_UNARY_NEG}, "z"),
                  RowDemand::kAll);
  const auto graph = std::move(builder_).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  const StepForCost step{{2, 1}};
  constexpr double kX = 2 * 8 * 4, kY = 2 * 6 * 4, kWeight = 6 * 8 * 4;
  const auto bytes = [&](const std::vector<uint32_t>& ops) {
    return GroupCost(*graph, ops).At(step).bytes;
  };
  EXPECT_DOUBLE_EQ(bytes({0}), 2 * kX);
  EXPECT_DOUBLE_EQ(bytes({1}), kX + kWeight + kY);
  EXPECT_DOUBLE_EQ(bytes({0, 1}), kX + kX + kWeight + kY) << "z still reads the norm";
  EXPECT_DOUBLE_EQ(bytes({0, 1, 2}), kX + kWeight + kY + kX);
  OpCost sum;
  for (const Op& op : graph->ops) sum += CostOf(*graph, op, step);
  const std::vector<uint32_t> all = {0, 1, 2};
  EXPECT_DOUBLE_EQ(GroupCost(*graph, all).At(step).operations, sum.operations);
}

// Every op moves bytes, at least those of its results, and more rows never cost less.
TEST(OpCosts, EveryOpHasOne) {
  for (const test::OpCase& test_case : test::OpCases()) {
    const Graph graph = test::GraphOf(test_case.use);
    SCOPED_TRACE(NameOf(test_case.use.kind));
    ASSERT_EQ(graph.ops.size(), 1U);
    const OpCost few = CostOf(graph, graph.ops[0], {{2, 2}});
    const OpCost many = CostOf(graph, graph.ops[0], {{4, 4}});
    EXPECT_GT(few.bytes, 0);
    EXPECT_GE(few.operations, 0);
    EXPECT_GE(many.bytes, few.bytes);
    EXPECT_GE(many.operations, few.operations);
  }
}

}  // namespace
}  // namespace rullama
