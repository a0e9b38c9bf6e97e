#include "engine/turn_taker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/must_test_util.h"

namespace rullama {
namespace {

TEST(TurnTaker, OneAfterAnother) {
  TurnTaker taker;
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const TurnTaker::Turn turn = Must(taker.Take({}));
        const int now = ++inside;
        if (now > most) most = now;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(most, 1);
}

TEST(TurnTaker, AWaitCanBeStopped) {
  TurnTaker taker;
  std::optional<TurnTaker::Turn> turn(Must(taker.Take({})));
  std::stop_source stop;
  std::jthread waiting([&] {
    const auto second = taker.Take(stop.get_token());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().id, "run.cancelled");
  });
  stop.request_stop();
  waiting.join();
  turn.reset();
  EXPECT_TRUE(taker.Take({})) << "the turn that was stopped is not taken";
}

}  // namespace
}  // namespace rullama
