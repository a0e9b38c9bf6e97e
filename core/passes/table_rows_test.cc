#include "core/passes/table_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/must_test_util.h"
#include "core/ir/builder.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

const auto kAny = [](const Value&) { return true; };

class ReplaceLookupsTest : public ::testing::Test {
 protected:
  ValueId LookUp(ValueId ids, int64_t column, int64_t columns) {
    return builder_.Add(
        ops::GatherRows{.table = table_, .ids = ids, .column = column, .columns = columns});
  }
  Graph Finish(ValueId result) {
    builder_.Output("y", result, RowDemand::kAll);
    return Must(std::move(builder_).Finish());
  }
  static int64_t CountLookups(const Graph& graph) {
    return std::ranges::count(graph.ops, OpKind::kGatherRows, &Op::kind);
  }

  GraphBuilder builder_{"lookups"};
  ValueId tokens_ = builder_.Input(input_names::kTokens, {DType::kI32, {Dim::T()}});
  ValueId table_ = builder_.Constant("table", {DType::kQ8_0, {8, 96}});
  std::vector<TableLookup> lookups_;
};

TEST_F(ReplaceLookupsTest, EachRangeOfColumnsBecomesAnInput) {
  const ValueId twice = builder_.Add(ops::Sum(LookUp(tokens_, 0, 32), LookUp(tokens_, 0, 32)));
  const Graph graph = Finish(builder_.Add(ops::Sum(twice, LookUp(tokens_, 64, 32))));
  const Graph replaced = Must(ReplaceLookups(graph, kAny, lookups_));
  EXPECT_EQ(CountLookups(replaced), 0);
  EXPECT_EQ(replaced.Find("table"), kNoValue) << "the table is not used any more";
  ASSERT_EQ(lookups_.size(), 2U);
  EXPECT_EQ(lookups_[0].input, "table[0:32]");
  EXPECT_EQ(lookups_[1].input, "table[64:96]");
  EXPECT_EQ(lookups_[1].column, 64);
  EXPECT_EQ(lookups_[1].columns, 32);
  EXPECT_EQ(lookups_[1].table.source, "table");
  const ValueId input = replaced.Find("table[64:96]");
  ASSERT_NE(input, kNoValue);
  EXPECT_EQ(replaced.value(input).lifetime, Lifetime::kInput);
  EXPECT_EQ(replaced.type(input), TensorType(DType::kF32, {Dim::T(), 32}));
}

TEST_F(ReplaceLookupsTest, GraphsShareLookups) {
  const Graph graph = Finish(builder_.Add(ops::Copy{.x = LookUp(tokens_, 0, 0)}));
  ASSERT_TRUE(ReplaceLookups(graph, kAny, lookups_));
  ASSERT_TRUE(ReplaceLookups(graph, kAny, lookups_));
  EXPECT_THAT(lookups_, ElementsAre(::testing::Field(&TableLookup::input, "table[0:96]")));
}

TEST_F(ReplaceLookupsTest, OtherLookupsStay) {
  const ValueId others = builder_.Input("others", {DType::kI32, {Dim::T()}});
  const ValueId state = builder_.State("state", {DType::kF32, {8, 32}});
  const ValueId of_state = builder_.Add(ops::GatherRows{.table = state, .ids = tokens_});
  const Graph graph = Finish(builder_.Add(ops::Sum(LookUp(others, 0, 32), of_state)));
  EXPECT_EQ(CountLookups(Must(ReplaceLookups(graph, kAny, lookups_))), 2);
  EXPECT_TRUE(lookups_.empty());
}

TEST_F(ReplaceLookupsTest, TablesThatAreNotChosenStay) {
  const Graph graph = Finish(builder_.Add(ops::Copy{.x = LookUp(tokens_, 0, 0)}));
  const auto none = [](const Value&) { return false; };
  EXPECT_EQ(CountLookups(Must(ReplaceLookups(graph, none, lookups_))), 1);
  EXPECT_TRUE(lookups_.empty());
}

}  // namespace
}  // namespace rullama
