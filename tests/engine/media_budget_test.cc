#include "engine/media/media_budget.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/base/must_test_util.h"

namespace rullama {
namespace {

constexpr MediaBudgetLimits kSmall{.decoding_bytes = 100, .decoders = 2, .decoded_bytes = 50};

// A reservation by a thread of its own.
std::future<Result<MediaBudget::Part>> Ask(MediaBudget& budget, uint64_t bytes,
                                           const std::stop_token& stop = {}) {
  return std::async(std::launch::async,
                    [&budget, bytes, stop] { return budget.ReserveDecoding(bytes, stop); });
}

// One that finds no room: when this returns, it waits after those that waited before.
std::future<Result<MediaBudget::Part>> AskAndWait(MediaBudget& budget, uint64_t bytes,
                                                  const std::stop_token& stop = {}) {
  const size_t before = budget.waiting_to_decode();
  auto asked = Ask(budget, bytes, stop);
  while (budget.waiting_to_decode() == before) std::this_thread::yield();
  return asked;
}

TEST(MediaBudgetTest, WhoeverFindsNoRoomWaitsForIt) {
  MediaBudget budget(kSmall);
  MediaBudget::Part first = Must(budget.ReserveDecoding(60, {}));
  auto second = AskAndWait(budget, 41);
  first.Keep(59);
  EXPECT_EQ(Must(second.get()).bytes(), 41u);
}

TEST(MediaBudgetTest, OnlySoManyDecodeAtOnce) {
  MediaBudget budget(kSmall);
  MediaBudget::Part first = Must(budget.ReserveDecoding(1, {}));
  MediaBudget::Part second = Must(budget.ReserveDecoding(0, {}));
  auto third = AskAndWait(budget, 1);
  second = {};
  EXPECT_EQ(Must(third.get()).bytes(), 1u);
}

TEST(MediaBudgetTest, WhatIsTooLargeIsAloneAndNobodyOvertakesIt) {
  MediaBudget budget(kSmall);
  MediaBudget::Part first = Must(budget.ReserveDecoding(1, {}));
  auto large = AskAndWait(budget, 1'000);
  auto small = AskAndWait(budget, 1);
  first.Keep(0);
  MediaBudget::Part held = Must(large.get());
  EXPECT_EQ(budget.waiting_to_decode(), 1U);
  held.Keep(0);
  EXPECT_TRUE(small.get().has_value());
}

TEST(MediaBudgetTest, WhoeverIsToldToStopWaitsNoLongerAndHoldsNobodyUp) {
  MediaBudget budget(kSmall);
  const MediaBudget::Part first = Must(budget.ReserveDecoding(60, {}));
  std::stop_source stop;
  auto second = AskAndWait(budget, 90, stop.get_token());
  auto third = AskAndWait(budget, 40);
  stop.request_stop();
  EXPECT_EQ(second.get().error().id, "run.cancelled");
  EXPECT_TRUE(third.get().has_value());
}

TEST(MediaBudgetTest, PartsAreGivenBackOneByOne) {
  MediaBudget budget(kSmall);
  MediaBudget::Part all = Must(budget.ReserveDecoded(50, {}));
  MediaBudget::Part one = all.Split(20);
  EXPECT_EQ(one.bytes(), 20u);
  EXPECT_EQ(all.bytes(), 30u);
  EXPECT_EQ(all.Split(40).bytes(), 30u);  // and gives it back
  one.Keep(10);
  EXPECT_EQ(Must(budget.ReserveDecoded(40, {})).bytes(), 40u);
  MediaBudget::Part moved = std::move(one);
  moved = {};
  all = {};
  EXPECT_EQ(Must(budget.ReserveDecoded(50, {})).bytes(), 50u);
}

}  // namespace
}  // namespace rullama
