#include "backends/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

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

TEST_P(ThreadPoolTest, EveryPartRunsOnce) {
  ThreadPool pool(GetParam());
  for (const size_t parts : {0U, 1U, 2U, 7U, 100U}) {
    for (int round = 0; round < 50; ++round) {
      std::array<std::atomic<int>, 100> runs{};
      pool.Share(parts, [&](size_t part) { ++runs[part]; });
      for (size_t part = 0; part < runs.size(); ++part) {
        EXPECT_EQ(runs[part].load(), part < parts ? 1 : 0);
      }
    }
  }
}

// The parts of phases of 8, each of which reads what the phase before wrote without
// synchronisation.
class CountingPhases {
 public:
  explicit CountingPhases(size_t phases) : parts_(phases) {}

  bool Run(size_t phase) {
    Parts& parts = parts_[phase];
    size_t ran = 0;
    for (size_t i = parts.next++; i < kParts; i = parts.next++, ++ran) {
      parts.values[i] =
          phase == 0 ? static_cast<int>(i) : parts_[phase - 1].values[(i + 1) % kParts] + 1;
    }
    return ran > 0 && parts.left.fetch_sub(ran) == ran;
  }
  [[nodiscard]] bool Correct() const {
    for (size_t phase = 0; phase < parts_.size(); ++phase) {
      for (size_t i = 0; i < kParts; ++i) {
        if (parts_[phase].values[i] != static_cast<int>((i + phase) % kParts + phase)) return false;
      }
    }
    return true;
  }

 private:
  static constexpr size_t kParts = 8;
  struct Parts {
    std::atomic<size_t> next{0};
    std::atomic<size_t> left{kParts};
    std::array<int, kParts> values{};
  };
  std::vector<Parts> parts_;
};

TEST_P(ThreadPoolTest, PhasesFollowOneAnother) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    CountingPhases phases(500);
    pool.Run(500, [&](int /*worker*/, size_t phase) { return phases.Run(phase); });
    EXPECT_TRUE(phases.Correct());
  }
}

// Worker 0 begins when another is there, and ends without that worker's help.
TEST_P(ThreadPoolTest, NobodyWaitsForAWorkerThatDoesNothing) {
  ThreadPool pool(GetParam());
  CountingPhases phases(100);
  std::atomic<bool> over{false};
  std::atomic<bool> is_there{GetParam() == 1};
  pool.Run(100, [&](int worker, size_t phase) {
    if (worker != 0) {
      is_there = true;
      while (!over) std::this_thread::yield();
      return false;
    }
    while (!is_there) std::this_thread::yield();
    const bool ended = phases.Run(phase);
    if (phase == 99) over = true;
    return ended;
  });
  EXPECT_TRUE(phases.Correct());
}

INSTANTIATE_TEST_SUITE_P(Workers, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPoolTest, IdlePoolsAreDestroyedWithoutAWord) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace rullama::cpu
