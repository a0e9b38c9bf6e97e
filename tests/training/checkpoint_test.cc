// Checkpoints on the disk: whole whenever a process is killed, and found again.
#include "engine/training/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/must_test_util.h"

namespace rullama::training {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const RunIdentity kIdentity = {{"rank", "4"}};

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A checkpoint whose numbers all are its step.
  static Status Write(const fs::path& folder, int64_t step) {
    RunState state{.identity = kIdentity};
    state.history.steps.assign(static_cast<size_t>(step), 1.5);
    state.m["a"] = std::vector<float>(256, static_cast<float>(step));
    return ReplaceFolder(folder, [&](const fs::path& path) { return WriteRunState(state, path); });
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("checkpoint_test_" + std::to_string(::getpid()));
};

// Each look is a moment at which the process could have been killed; each round ends with a kill.
TEST_F(CheckpointTest, IsWholeWheneverItsWriterIsKilled) {
  const fs::path checkpoint = folder_ / "0000001";
  ASSERT_TRUE(Write(checkpoint, 1));
  int64_t last = 1;
  for (int round = 0; round < 25; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int64_t step = last + 1;; ++step) {
        if (!Write(checkpoint, step)) ::_exit(1);
      }
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(10 + 2 * round);
    bool there = true;
    while (there && std::chrono::steady_clock::now() < end) {
      there = ::access((checkpoint / "training_state.json").c_str(), R_OK) == 0;
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child could not write";
    ASSERT_TRUE(there) << "there was no checkpoint for a moment";
    const RunState state = Must(ReadRunState(Must(FindCheckpoint(folder_)), kIdentity));
    const int64_t step = std::ssize(state.history.steps);
    EXPECT_GE(step, last);
    EXPECT_EQ(state.m.at("a"), std::vector<float>(256, static_cast<float>(step)));
    last = step;
  }
  EXPECT_GT(last, 1);
  // The next checkpoint removes what the last kill left.
  ASSERT_TRUE(Write(checkpoint, last + 1));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(CheckpointTest, TheNewestOfARunIsFound) {
  for (const int64_t step : {2, 10, 12345678}) {
    ASSERT_TRUE(Write(folder_ / CheckpointName(step), 1));
  }
  fs::create_directories(folder_ / "99999999.new");
  fs::create_directories(folder_ / "99999999");  // without a state
  fs::create_directories(folder_ / "best");
  EXPECT_EQ(Must(FindCheckpoint(folder_)), folder_ / "12345678");
  EXPECT_EQ(Must(FindCheckpoint(folder_ / "0000010")), folder_ / "0000010");
  const auto none = FindCheckpoint(folder_ / "best");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().id, "train.resume");
  EXPECT_THAT(none.error().message, HasSubstr("has no checkpoint, such as 0000100"));
}

TEST_F(CheckpointTest, OfAnotherRunIsRefused) {
  ASSERT_TRUE(Write(folder_ / "0000001", 1));
  const auto other = ReadRunState(folder_ / "0000001", {{"rank", "8"}});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("has rank = 4, this run has 8"));
  std::ofstream(folder_ / "0000001/training_state.json") << "{";
  EXPECT_FALSE(ReadRunState(folder_ / "0000001", kIdentity));
}

}  // namespace
}  // namespace rullama::training
