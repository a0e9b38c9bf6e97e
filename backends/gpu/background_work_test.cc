#include "backends/gpu/background_work.h"

#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace rullama::gpu {
namespace {

using ::testing::ElementsAre;

TEST(BackgroundWork, OneThreadKeepsTheOrder) {
  std::vector<int> done;
  std::promise<void> last;
  BackgroundWork work(1);
  for (const int i : {1, 2, 3}) work.Add([&done, i] { done.push_back(i); });
  work.Add([&last] { last.set_value(); });
  last.get_future().wait();
  EXPECT_THAT(done, ElementsAre(1, 2, 3));
}

TEST(BackgroundWork, TwoThreadsRunTwoTasksAtATime) {
  std::promise<void> first, second;
  BackgroundWork work(2);
  // Each waits for the other.
  work.Add([&] {
    first.set_value();
    second.get_future().wait();
  });
  std::promise<void> both;
  work.Add([&] {
    first.get_future().wait();
    second.set_value();
    both.set_value();
  });
  both.get_future().wait();
}

TEST(BackgroundWork, TheEndWaitsForWhatHasBegunAndDropsTheRest) {
  std::vector<int> done;
  auto second = std::make_shared<int>(2);
  const std::weak_ptr<int> kept = second;
  {
    std::promise<void> begun;
    BackgroundWork work(1);
    work.Add([&] {
      begun.set_value();
      while (!kept.expired()) std::this_thread::yield();  // until the destructor drops the second
      done.push_back(1);
    });
    begun.get_future().wait();
    work.Add([&done, number = std::move(second)] { done.push_back(*number); });
  }
  EXPECT_THAT(done, ElementsAre(1));
}

TEST(BackgroundWork, AQuarterOfTheProcessorsButOneAtLeastAndFourAtMost) {
  EXPECT_EQ(BackgroundWork::ThreadsOf(1), 1U);
  EXPECT_EQ(BackgroundWork::ThreadsOf(8), 2U);
  EXPECT_EQ(BackgroundWork::ThreadsOf(128), 4U);
}

}  // namespace
}  // namespace rullama::gpu
