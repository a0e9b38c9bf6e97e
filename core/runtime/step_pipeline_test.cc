// Tests in which order segments run, and that workers run at the same time.
#include "core/runtime/step_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <utility>
#include <vector>

namespace rullama {
namespace {

using ::testing::ElementsAre;

// A step whose segment i runs on worker i.
class FakeStep final : public PipelinedStep {
 public:
  using Run = std::function<Status(size_t segment)>;
  FakeStep(size_t segments, Run run) : segments_(segments), run_(std::move(run)) {}

  [[nodiscard]] size_t segment_count() const override { return segments_; }
  [[nodiscard]] size_t worker_of(size_t segment) const override { return segment; }
  Status RunSegment(size_t segment) override { return run_(segment); }

 private:
  size_t segments_;
  Run run_;
};

// The second segment of the first step and the first of the second wait for each other, so the test
// ends only if both workers run at once.
TEST(StepPipelineTest, WorkersRunSegmentsOfTwoStepsAtTheSameTime) {
  StepPipeline pipeline(2);
  std::latch both(2);
  FakeStep first(2, [&](size_t segment) {
    if (segment == 1) both.arrive_and_wait();
    return OkStatus();
  });
  FakeStep second(2, [&](size_t segment) {
    if (segment == 0) both.arrive_and_wait();
    return OkStatus();
  });
  pipeline.Start(first);
  pipeline.Start(second);
  EXPECT_TRUE(pipeline.Wait(first));
  EXPECT_TRUE(pipeline.Wait(second));
}

TEST(StepPipelineTest, AWorkerRunsOneSegmentAtATimeInTheOrderOfTheSteps) {
  std::vector<std::vector<int>> ran(2);  // steps, by worker
  std::vector<std::atomic<int>> busy(2);
  std::latch started(1);
  const auto step = [&](int number) {
    return [&, number](size_t segment) {
      if (number == 0) started.wait();
      EXPECT_EQ(++busy[segment], 1);
      ran[segment].push_back(number);
      --busy[segment];
      return OkStatus();
    };
  };
  StepPipeline pipeline(2);
  FakeStep first(2, step(0));
  FakeStep second(2, step(1));
  FakeStep third(2, step(2));
  for (FakeStep* each : {&first, &second, &third}) pipeline.Start(*each);
  started.count_down();
  pipeline.WaitForAll();
  EXPECT_THAT(ran[0], ElementsAre(0, 1, 2));
  EXPECT_THAT(ran[1], ElementsAre(0, 1, 2));
}

TEST(StepPipelineTest, AStepThatFailsRunsNoFurtherAndLeavesOthersAlone) {
  StepPipeline pipeline(2);
  int ran = 0;
  FakeStep failing(2, [&](size_t segment) -> Status {
    ++ran;
    if (segment > 0) return OkStatus();
    return MakeError(ErrorKind::kRuntime, "test.failed", "segment {}", segment);
  });
  FakeStep other(2, [](size_t) { return OkStatus(); });
  pipeline.Start(failing);
  pipeline.Start(other);
  const Status status = pipeline.Wait(failing);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "test.failed");
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(pipeline.Wait(other));
  // The step can be started again.
  pipeline.Start(failing);
  EXPECT_FALSE(pipeline.Wait(failing));
  EXPECT_EQ(ran, 2);
}

TEST(StepPipelineTest, TheEndOfAPipelineWaitsForItsSteps) {
  std::atomic<int> ran = 0;
  FakeStep step(2, [&](size_t) {
    ++ran;
    return OkStatus();
  });
  {
    StepPipeline pipeline(2);
    pipeline.Start(step);
  }
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace rullama
