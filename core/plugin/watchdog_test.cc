#include "core/plugin/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>

namespace rullama {
namespace {

using std::chrono::milliseconds;

TEST(Watchdog, SpeaksUpWhenItTakesTooLong) {
  std::atomic<int> calls = 0;
  {
    const Watchdog watchdog(milliseconds(5), [&] { ++calls; });
    while (calls == 0) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(calls, 1);
}

TEST(Watchdog, IsQuietAndDoesNotDelayWhatIsQuick) {
  std::atomic<int> calls = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    const Watchdog watchdog(std::chrono::hours(1), [&] { ++calls; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace rullama
