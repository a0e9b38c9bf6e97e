#include "backends/gpu/deferred_errors.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace rullama::gpu {
namespace {

class Work final : public Noted {
 public:
  explicit Work(std::string error) : error_(std::move(error)) {}
  void CheckFailure() override {
    ++checks;
    if (!error_.empty()) throw std::runtime_error(std::exchange(error_, ""));
  }
  int checks = 0;

 private:
  std::string error_;
};

// The error of a step must not come up in a later one.
TEST(RunningWork, ForgetsTheErrorsAfterTheFirst) {
  Work good(""), first("first"), second("second");
  RunningWork running;
  for (Work* work : {&good, &first, &second}) running.Add(*work);
  try {
    running.Check();
    FAIL() << "expected an error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  for (const Work* work : {&good, &first, &second}) EXPECT_EQ(work->checks, 1);
  running.Add(second);
  EXPECT_NO_THROW(running.Check());
}

TEST(RunningWork, LeavesOutWhatWasDropped) {
  Work work("error");
  RunningWork running;
  running.Add(work);
  running.Drop(work);
  EXPECT_NO_THROW(running.Check());
  EXPECT_EQ(work.checks, 0);
}

}  // namespace
}  // namespace rullama::gpu
