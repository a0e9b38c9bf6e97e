// Signals that come at the same moment as another one, or as work is told of one.
#include "cli/terminal/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <thread>

namespace rullama::cli {
namespace {

void WriteError(std::string_view text) {
  ASSERT_EQ(::write(STDERR_FILENO, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// A death test's process, after the signals of the test: ends with 1 instead of hanging.
[[noreturn]] void WaitForTheEnd() {
  for (int i = 0; i < 600; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::_exit(1);
}

// Whether each of many terminations is known, though another thread forgets interrupts meanwhile.
bool TerminationsAreKnown() {
  constexpr int kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<bool> begun = false, stop = false;
    std::thread clearing([&] {
      while (!stop) {
        ClearInterrupt();
        begun = true;
      }
    });
    while (!begun) std::this_thread::yield();
    ::raise(SIGTERM);
    stop = true;
    clearing.join();
    if (!*CancelFlag() || !Terminated() || Interrupted()) return false;
    ForgetSignals();
  }
  return true;
}

TEST(SignalsDeathTest, ATerminationIsNotForgottenWithAnInterrupt) {
  const auto terminated = [] {
    InstallSignalHandlers();
    SetDrainSeconds(0);  // the process stays
    ::_exit(TerminationsAreKnown() ? 0 : 1);
  };
  EXPECT_EXIT(terminated(), ::testing::ExitedWithCode(0), "");
}

TEST(Signals, AnInterruptIsForgotten) {
  InstallSignalHandlers();
  ::raise(SIGINT);
  EXPECT_TRUE(Interrupted());
  EXPECT_TRUE(*CancelFlag());
  ClearInterrupt();
  EXPECT_FALSE(Interrupted());
  EXPECT_FALSE(*CancelFlag());
  ::raise(SIGALRM);  // that of the interrupt: nothing is due
  ::raise(SIGINT);   // a first one again
  EXPECT_TRUE(Interrupted());
  ClearInterrupt();
}

// The alarm of an interrupt may come after SIGTERM has set its own.
TEST(SignalsDeathTest, AnAlarmThatComesEarlyLeavesTheTimeToEnd) {
  const auto terminated_early = [] {
    InstallSignalHandlers();
    SetDrainSeconds(2);
    ::raise(SIGINT);
    ::raise(SIGTERM);
    ::raise(SIGALRM);
    ClearInterrupt();
    ::raise(SIGALRM);
    WriteError("still there");
    WaitForTheEnd();
  };
  EXPECT_EXIT(terminated_early(), ::testing::ExitedWithCode(kExitTerminated), "still there");
}

TEST(SignalsDeathTest, ASecondInterruptEndsAtOnce) {
  const auto twice = [] {
    InstallSignalHandlers();
    ::raise(SIGINT);
    WriteError("once");
    ::raise(SIGINT);
    WaitForTheEnd();
  };
  EXPECT_EXIT(twice(), ::testing::ExitedWithCode(kExitInterrupted), "once");
}

}  // namespace
}  // namespace rullama::cli
