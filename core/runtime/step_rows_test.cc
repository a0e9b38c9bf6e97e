#include "core/runtime/step_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StepRows, ContinueTheSlot) {
  const std::vector<int32_t> tokens = {7, 8, 9};
  const StepRows rows =
      StepRows::Consecutive(tokens, /*past=*/4, /*slot=*/2, DemandMode::kPerOutput, GraphHandle{1});
  EXPECT_EQ(rows.graph, GraphHandle{1});
  EXPECT_EQ(rows.demand, DemandMode::kPerOutput);
  EXPECT_EQ(rows.tokens, tokens);
  EXPECT_THAT(rows.pos, ElementsAre(4, 5, 6));
  EXPECT_THAT(rows.slot, ElementsAre(2, 2, 2));
  EXPECT_THAT(rows.wanted, ElementsAre(2)) << "the last row is wanted";
}

TEST(StepRows, SettingThemAgainLeavesNothingOfTheLastStep) {
  StepRows rows = StepRows::Consecutive(std::vector<int32_t>{7, 8, 9}, /*past=*/0, /*slot=*/0,
                                        DemandMode::kPerOutput, GraphHandle{1});
  rows.SetConsecutive(std::vector<int32_t>{5}, /*past=*/3, /*slot_of_all=*/1,
                      DemandMode::kStateOnly);
  EXPECT_EQ(rows.graph, GraphHandle{1}) << "the graph is kept";
  EXPECT_THAT(rows.tokens, ElementsAre(5));
  EXPECT_THAT(rows.pos, ElementsAre(3));
  EXPECT_THAT(rows.slot, ElementsAre(1));
  EXPECT_THAT(rows.wanted, IsEmpty());
}

}  // namespace
}  // namespace rullama
