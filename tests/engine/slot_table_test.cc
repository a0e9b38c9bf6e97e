#include "engine/scheduling/slot_table.h"

#include <gmock/gmock.h>

#include <memory>
#include <numeric>

namespace rullama {
namespace {

constexpr int64_t kChunk = 4;

std::vector<int32_t> Tokens(int count, int first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class SlotTableTest : public ::testing::Test {
 protected:
  // A request with this prompt has run and is over.
  SlotTable::Choice Use(const std::vector<int32_t>& prompt) {
    const SlotTable::Choice choice = *Choose(prompt);
    table_.Take(choice, space_);
    table_.Append(choice.slot, std::span(prompt).subspan(static_cast<size_t>(choice.reused)));
    table_.Release(choice.slot);
    return choice;
  }
  std::optional<SlotTable::Choice> Choose(const std::vector<int32_t>& prompt, bool reuse = true) {
    std::vector<int64_t> cuts;
    for (int64_t cut = kChunk; reuse && cut <= std::ssize(prompt); cut += kChunk) {
      cuts.push_back(cut);
    }
    return table_.Choose(prompt, cuts, answers_, space_,
                         [this](int32_t, int64_t p) { return p <= can_return_; });
  }

  SlotTable table_{2};
  int64_t can_return_ = 1000;
  bool answers_ = false;
  PromptSpace space_ = {};
};

TEST_F(SlotTableTest, ReusesWholeChunksAndLeavesOneRow) {
  Use(Tokens(12));
  EXPECT_EQ(Choose(Tokens(12))->reused, 8);  // one row is left to be read
  EXPECT_EQ(Choose(Tokens(13))->reused, 12);
  EXPECT_EQ(Choose(Tokens(11))->reused, 8);
  EXPECT_EQ(Choose(Tokens(12), /*reuse=*/false)->reused, 0);
  EXPECT_EQ(Choose(Tokens(3))->reused, 0);
}

TEST_F(SlotTableTest, ReusesOnlyWhatTheSessionCanReturnTo) {
  Use(Tokens(12));
  can_return_ = 5;
  EXPECT_EQ(Choose(Tokens(20))->reused, 4);
}

TEST_F(SlotTableTest, ReusesRowsOfTheSameAdaptersOnly) {
  const auto adapters = [](uint64_t key) {
    return std::make_shared<const AdaptersInForce>(AdaptersInForce{{{0, 1}}, key});
  };
  space_.adapters = adapters(7);
  Use(Tokens(12));
  space_.adapters = adapters(8);
  EXPECT_EQ(Choose(Tokens(12))->reused, 0);
  space_.adapters = nullptr;
  EXPECT_EQ(Choose(Tokens(12))->reused, 0);
  space_.adapters = adapters(7);
  EXPECT_EQ(Choose(Tokens(12))->reused, 8);
}

TEST_F(SlotTableTest, PrefersTheLongestPrefixThenAnEmptySlotThenTheOldest) {
  EXPECT_EQ(Use(Tokens(12)).slot, 0);
  EXPECT_EQ(Use(Tokens(12, 100)).slot, 1);    // empty
  EXPECT_EQ(Use(Tokens(16)).slot, 0);         // holds most of it
  EXPECT_EQ(Choose(Tokens(5, 50))->slot, 1);  // unused for longer
}

TEST_F(SlotTableTest, BusySlotsAreNotChosen) {
  table_.Take(*Choose(Tokens(5)), space_);
  table_.Take(*Choose(Tokens(5)), space_);
  EXPECT_FALSE(Choose(Tokens(5)).has_value());
  table_.Release(1);
  EXPECT_EQ(Choose(Tokens(5))->slot, 1);
}

TEST_F(SlotTableTest, ASlotCanBeAskedFor) {
  Use(Tokens(12));
  const auto choose = [this](int32_t only) {
    const std::vector<int64_t> cuts = {kChunk};
    return table_.Choose(
        Tokens(12), cuts, answers_, space_, [](int32_t, int64_t) { return true; }, only);
  };
  EXPECT_EQ(choose(-1)->slot, 0);
  EXPECT_EQ(choose(1)->slot, 1);
  EXPECT_EQ(choose(1)->reused, 0);
  table_.Take(*choose(1), space_);
  EXPECT_FALSE(choose(1).has_value());
}

TEST_F(SlotTableTest, WhatIsFilledInIsReused) {
  table_.Fill(1, Tokens(10), /*chunked=*/8, space_);
  EXPECT_EQ(Choose(Tokens(20))->slot, 1);
  EXPECT_EQ(Choose(Tokens(20))->reused, 8);
  space_ = {.client = 1};
  EXPECT_EQ(Choose(Tokens(20))->reused, 0);
}

TEST_F(SlotTableTest, ClientsShareNothing) {
  Use(Tokens(12));
  space_ = {.client = 1};
  EXPECT_EQ(Choose(Tokens(20))->reused, 0);
  space_ = {};
  EXPECT_EQ(Choose(Tokens(20))->reused, 12);
}

TEST_F(SlotTableTest, ForgetsWhatFailed) {
  Use(Tokens(12));
  table_.Forget(0);
  EXPECT_EQ(Choose(Tokens(20))->reused, 0);
}

TEST_F(SlotTableTest, ContinuesAfterAnAnswerIfAsked) {
  const SlotTable::Choice first = *Choose(Tokens(10));
  table_.Take(first, space_);
  table_.Append(first.slot, Tokens(10));
  for (const int32_t token : {10, 11, 12}) table_.AppendDrawn(first.slot, token);
  table_.Release(first.slot);
  EXPECT_EQ(Choose(Tokens(20))->reused, 8);
  answers_ = true;
  EXPECT_EQ(Choose(Tokens(13))->reused, 8);  // one row is left to be read
  const SlotTable::Choice next = Use(Tokens(20));
  EXPECT_EQ(next.reused, 13);
  EXPECT_TRUE(next.goes_on);
  // Rows read after the answer were not cut at cut points.
  answers_ = false;
  EXPECT_EQ(Choose(Tokens(40))->reused, 8);
  answers_ = true;
  EXPECT_EQ(Choose(Tokens(40))->reused, 20);
  space_ = {.client = 1};
  EXPECT_EQ(Choose(Tokens(40))->reused, 0);
}

}  // namespace
}  // namespace rullama
