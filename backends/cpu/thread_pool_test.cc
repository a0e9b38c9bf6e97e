#include "backends/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace rullama::cpu {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryWorkerRunsTheBodyOnce) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 200; ++round) {
    std::array<std::atomic<int>, 8> runs{};
    pool.Run([&](int worker) { ++runs[static_cast<size_t>(worker)]; });
    for (int worker = 0; worker < 8; ++worker) {
      EXPECT_EQ(runs[static_cast<size_t>(worker)].load(), worker < GetParam() ? 1 : 0);
    }
  }
}

// Other workers read in the next phase what a worker wrote in this one without synchronisation.
TEST_P(ThreadPoolTest, BarrierSeparatesPhases) {
  const int workers = GetParam();
  ThreadPool pool(workers);
  std::array<int, 8> value{};
  std::atomic<bool> wrong{false};
  pool.Run([&](int worker) {
    for (int phase = 1; phase <= 500; ++phase) {
      value[static_cast<size_t>(worker)] = phase;
      pool.Barrier();
      if (value[static_cast<size_t>((worker + 1) % workers)] != phase) wrong = true;
      pool.Barrier();
    }
  });
  EXPECT_FALSE(wrong);
}

INSTANTIATE_TEST_SUITE_P(Workers, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPoolTest, IdlePoolsAreDestroyedWithoutAWord) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace rullama::cpu
