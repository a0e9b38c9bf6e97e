#include "backends/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <string_view>

namespace rullama::cpu {
namespace {

// In a process of its own, for the limit counts threads of a user, and root has none.
TEST(ThreadPoolLimitTest, RefusedThreadsAreNamed) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{3, 3};
    if (::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(2);
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
    try {
      const ThreadPool pool(8);
    } catch (const sdk::Error& error) {
      const std::string_view text = error.what();
      const bool named = text.find("of 8 threads") != std::string_view::npos &&
                         text.find("ulimit -u") != std::string_view::npos;
      ::_exit(named ? 0 : 4);
    }
    ::_exit(5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

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
