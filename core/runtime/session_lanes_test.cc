// Tests of steps in lanes: the results are those of steps one after another, and wrong use is
// refused. The lookup of the counting graph runs on one device, the rest on another.
#include <gmock/gmock.h>

#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr StepLimits kLimits{.max_t = 4, .max_r = 2};

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// A row of each slot, with a token.
StepRows RowsOf(const Session& session, const std::vector<std::pair<int32_t, int32_t>>& rows) {
  StepRows step;
  for (const auto& [slot, token] : rows) {
    step.wanted.push_back(static_cast<int32_t>(step.tokens.size()));
    step.tokens.push_back(token);
    step.slot.push_back(slot);
    step.pos.push_back(session.past(slot));
  }
  return step;
}

std::vector<int32_t> TokensOf(Session& session, size_t lane, size_t count) {
  std::vector<int32_t> tokens(count);
  const Status read =
      session.ReadOutput(output_names::kToken, std::as_writable_bytes(std::span(tokens)), lane);
  EXPECT_TRUE(read) << read.error().ToString();
  return tokens;
}

TEST(SessionLanesTest, EachLaneHasItsRowsInputsAndResults) {
  const CountingSession counted(kLimits, /*split=*/true, nullptr, /*lanes=*/2);
  Session& session = counted.get();
  // Token 6 follows every token of the second lane.
  ASSERT_TRUE(session.SetInput(kBiased, BytesOf(int32_t{6}), 1));
  ASSERT_TRUE(session.SetInput(kBias, BytesOf(2.0F), 1));
  for (int32_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(session.Start(0, RowsOf(session, {{0, 1}, {2, 3}})));
    ASSERT_TRUE(session.Start(1, RowsOf(session, {{1, 0}})));
    EXPECT_EQ(session.past(0), step) << "the step is not finished";
    ASSERT_TRUE(session.Finish(0));
    ASSERT_TRUE(session.Finish(1));
    EXPECT_THAT(TokensOf(session, 0, 2), ElementsAre(2, 4));
    EXPECT_THAT(TokensOf(session, 1, 1), ElementsAre(6));
    for (int32_t slot = 0; slot < kSlots; ++slot) EXPECT_EQ(session.past(slot), step + 1);
  }
}

TEST(SessionLanesTest, AStepOutsideLanesFindsIdleDevicesAndLeavesResultsAlone) {
  const CountingSession counted(kLimits, /*split=*/true, nullptr, /*lanes=*/2);
  Session& session = counted.get();
  ASSERT_TRUE(session.Start(0, RowsOf(session, {{0, 1}})));
  ASSERT_TRUE(session.Run(RowsOf(session, {{1, 4}})));
  EXPECT_THAT(counted.Tokens(1), ElementsAre(5));
  counted.SetBias(7, 2.0F);
  ASSERT_TRUE(session.Run(RowsOf(session, {{1, 4}})));
  EXPECT_THAT(counted.Tokens(1), ElementsAre(7));
  ASSERT_TRUE(session.Finish(0));
  EXPECT_THAT(TokensOf(session, 0, 1), ElementsAre(2));
}

TEST(SessionLanesTest, WrongUseIsRefused) {
  const CountingSession counted(kLimits, /*split=*/true, nullptr, /*lanes=*/2);
  Session& session = counted.get();
  const auto expect = [](const Status& status, const char* text) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().id, "session.internal");
    EXPECT_THAT(status.error().message, HasSubstr(text));
  };
  expect(session.Start(2, RowsOf(session, {{0, 1}})), "lane 2 of 2");
  expect(session.Finish(0), "lane 0 has no step in flight");
  ASSERT_TRUE(session.Start(0, RowsOf(session, {{0, 1}})));
  expect(session.Start(0, RowsOf(session, {{1, 1}})), "lane 0 has a step in flight");
  expect(session.SetInput(kBias, BytesOf(1.0F), 0), "lane 0 has a step in flight");
  expect(session.Start(1, RowsOf(session, {{0, 1}})), "slot 0");
  expect(session.SetPast(0, 0), "slot 0 has a step in flight");
  ASSERT_TRUE(session.Finish(0));
  int32_t token = 0;
  expect(session.ReadOutput(output_names::kToken, std::as_writable_bytes(std::span(&token, 1))),
         "no step has run");
  EXPECT_TRUE(session.SetPast(0, 0));
}

TEST(SessionLanesTest, AFailedStepLeavesThePast) {
  const CountingSession counted(kLimits, /*split=*/true, nullptr, /*lanes=*/2);
  Session& session = counted.get();
  // No row of the table.
  ASSERT_TRUE(session.Start(0, RowsOf(session, {{0, static_cast<int32_t>(kVocabulary)}})));
  ASSERT_TRUE(session.Start(1, RowsOf(session, {{1, 3}})));
  EXPECT_FALSE(session.Finish(0));
  EXPECT_EQ(session.past(0), 0);
  ASSERT_TRUE(session.Finish(1));
  EXPECT_THAT(TokensOf(session, 1, 1), ElementsAre(4));
  ASSERT_TRUE(session.Start(0, RowsOf(session, {{0, 2}})));
  ASSERT_TRUE(session.Finish(0));
  EXPECT_THAT(TokensOf(session, 0, 1), ElementsAre(3));
}

}  // namespace
}  // namespace rullama
