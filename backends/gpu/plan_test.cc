// Plans over a driver without a device.
#include "backends/gpu/plan.h"

#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/fake_driver_test_util.h"
#include "core/ir/text.h"
#include "core/plugin/graph_flatten.h"

namespace rullama::gpu {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Two norms, one after the other, for steps of at most `rows` rows.
std::string NormsOf(int rows) {
  const std::string most = std::to_string(rows);
  return "graph \"norms\" T<=" + most + " R<=" + most +
         "\n%0 = input \"x\" : f32[T,256]\n"
         "%1 \"first\" = rms_norm(%0, _) {eps=1e-06} : f32[T,256]\n"
         "%2 \"second\" = rms_norm(%1, _) {eps=1e-06} : f32[T,256]\n";
}

class PlanTest : public ::testing::Test {
 protected:
  void Make(const std::string& text, bool record_times = false, bool profile = false) {
    auto graph = ParseText(text);
    ASSERT_TRUE(graph.has_value()) << graph.error().ToString();
    const FlatGraph flat(*graph);
    rl_graph raw = *flat.view();
    raw.record_times = record_times ? 1 : 0;
    plan_ = std::make_unique<GpuPlan>(driver_, blocks_, kernels_, driver_.target(), profile,
                                      sdk::GraphView(raw));
  }
  // The error of the next step and of the wait after it.
  std::optional<sdk::Error> ErrorOfStep(int64_t t, int64_t r) {
    try {
      plan_->Execute(t, r);
      driver_.Wait();
    } catch (const sdk::Error& error) {
      return error;
    }
    return std::nullopt;
  }

  FakeHost host_;
  FakeDriver driver_{host_};
  BlockMemory blocks_{driver_, 0};
  KernelCache kernels_{driver_};
  std::unique_ptr<GpuPlan> plan_;
};

TEST_F(PlanTest, RecordsOnceAndSubmitsForEachStep) {
  Make(NormsOf(64));
  ASSERT_THAT(driver_.recorded, SizeIs(1));
  const size_t dispatches = driver_.recorded[0].dispatches;
  EXPECT_GE(dispatches, 2U);
  EXPECT_FALSE(driver_.recorded[0].timed);
  for (const int64_t rows : {1, 7, 64}) EXPECT_EQ(ErrorOfStep(rows, 1), std::nullopt);
  EXPECT_THAT(driver_.submitted, ElementsAre(dispatches, dispatches, dispatches));
  const rl_plan_stats stats = plan_->Stats();
  EXPECT_EQ(stats.recordings, 1U);
  EXPECT_EQ(stats.executions, 3U);
  EXPECT_EQ(stats.dispatches, 3 * dispatches);
  EXPECT_GE(stats.compilations, 1U);
}

TEST_F(PlanTest, AStepOfOneRowIsRecordedForEachNumberOfWantedRows) {
  Make(NormsOf(1));
  EXPECT_THAT(driver_.recorded, SizeIs(2));
  EXPECT_THAT(driver_.recorded, Each(Field(&FakeDriver::Recorded::few_rows, true)));
  EXPECT_EQ(ErrorOfStep(1, 0), std::nullopt);
  EXPECT_EQ(ErrorOfStep(1, 1), std::nullopt);
  const auto error = ErrorOfStep(2, 1);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), RL_INVALID_ARGUMENT);
  EXPECT_THAT(error->what(), HasSubstr("a step of 2 rows, 1 wanted, is outside"));
}

TEST_F(PlanTest, AFailedOpIsNamedOnceAndTheNextStepGoesOn) {
  Make(NormsOf(8));
  driver_.failed_op = 2;  // counted from 1
  const auto error = ErrorOfStep(3, 1);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), RL_INVALID_ARGUMENT);
  EXPECT_EQ(error->op_index(), 1U);
  EXPECT_NO_THROW(driver_.Wait());
  driver_.failed_op = 0;
  EXPECT_EQ(ErrorOfStep(3, 1), std::nullopt);
}

TEST_F(PlanTest, WhatIsCancelledIsNotSubmitted) {
  Make(NormsOf(8));
  host_.cancelled = true;
  const auto error = ErrorOfStep(3, 1);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), RL_CANCELLED);
  EXPECT_THAT(driver_.submitted, IsEmpty());
  host_.cancelled = false;
  EXPECT_EQ(ErrorOfStep(3, 1), std::nullopt);
}

TEST_F(PlanTest, TimesAreThoseOfTheLastStepAndNoneOfAFailedOne) {
  Make(NormsOf(8), true);
  ASSERT_THAT(driver_.recorded, SizeIs(1));
  EXPECT_TRUE(driver_.recorded[0].timed);
  const size_t dispatches = driver_.recorded[0].dispatches;
  plan_->Execute(3, 1);
  EXPECT_EQ(ErrorOfStep(4, 1), std::nullopt);  // two steps before one wait
  EXPECT_THAT(plan_->Times(), SizeIs(dispatches));
  EXPECT_EQ(plan_->Times().front().ops[0], 0U);
  EXPECT_EQ(plan_->Times().back().ops[0], 1U);
  driver_.failed_op = 1;
  EXPECT_NE(ErrorOfStep(3, 1), std::nullopt);
  EXPECT_THAT(plan_->Times(), IsEmpty());
}

TEST_F(PlanTest, AProfileIsLoggedInTheEnd) {
  Make(NormsOf(8), false, true);
  plan_->Execute(3, 1);
  EXPECT_EQ(ErrorOfStep(4, 1), std::nullopt);
  host_.messages.clear();
  plan_.reset();
  EXPECT_THAT(host_.messages,
              AllOf(Contains(HasSubstr("dispatches on 2 levels")),
                    Contains(HasSubstr("2 steps took")), Contains(HasSubstr("x rows"))));
}

// Joins every step.
class EveryStep final : public StepJoiner {
 public:
  explicit EveryStep(FakeDriver& driver) : driver_(driver) {}
  [[nodiscard]] std::optional<Target> TargetFor(const Target& device,
                                                const sdk::GraphView& /*graph*/) const override {
    return device;
  }
  void MergeKinds(std::vector<Dispatch>& /*dispatches*/) const override {}
  std::unique_ptr<JoinedKernels> Join(std::span<const PipelineKey> /*kinds*/) override {
    struct Joined final : JoinedKernels {
      explicit Joined(const bool& is_ready) : is_ready_(is_ready) {}
      [[nodiscard]] JoinState state() const noexcept override {
        return is_ready_ ? JoinState::kReady : JoinState::kWaiting;
      }
      bool GiveUp() noexcept override { return false; }
      void Wait() noexcept override {}
      const bool& is_ready_;
    };
    return std::make_unique<Joined>(is_ready);
  }
  JoinedCommands Record(const JoinedStep& step, BlockMemory& /*blocks*/) override {
    return {driver_.Record({.dispatches = step.dispatches.first(1), .kernels = kernels_}), 3, 100};
  }
  [[nodiscard]] sdk::Error StuckError() const override {
    return sdk::Error(RL_DEVICE_LOST, "it is stuck");
  }

  bool is_ready = true;

 private:
  FakeDriver& driver_;
  KernelCache kernels_{driver_};
};

TEST_F(PlanTest, JoinedStepsAreOneDispatchUntilOneIsStuck) {
  EveryStep joiner(driver_);
  driver_.step_joiner = &joiner;
  Make(NormsOf(1));
  EXPECT_EQ(ErrorOfStep(1, 1), std::nullopt);
  EXPECT_EQ(plan_->Stats().dispatches, 1U);
  EXPECT_GE(plan_->Stats().allocations, 2 * 3U);
  driver_.failed_op = kStuckStep;
  for (int i = 0; i < 2; ++i) {
    const auto error = ErrorOfStep(1, 1);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), RL_DEVICE_LOST);
    EXPECT_STREQ(error->what(), "it is stuck");
  }
  EXPECT_THAT(driver_.submitted, SizeIs(2)) << "a plan that got stuck runs no more steps";
  plan_.reset();
}

// They fill the memory in which workgroups wait for others anew.
TEST_F(PlanTest, StepsOfManyDispatchesRunAgainAfterOneIsStuck) {
  EveryStep joiner(driver_);
  joiner.is_ready = false;
  driver_.step_joiner = &joiner;
  Make(NormsOf(1));
  driver_.failed_op = kStuckStep;
  const auto error = ErrorOfStep(1, 1);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), RL_DEVICE_LOST);
  EXPECT_THAT(error->what(), HasSubstr("of a dispatch waited in vain"));
  driver_.failed_op = 0;
  EXPECT_EQ(ErrorOfStep(1, 1), std::nullopt);
  plan_.reset();
}

TEST_F(PlanTest, StepsAreManyDispatchesUntilTheirKernelsAreJoined) {
  EveryStep joiner(driver_);
  joiner.is_ready = false;
  driver_.step_joiner = &joiner;
  Make(NormsOf(1));
  EXPECT_THAT(driver_.compiled, Not(IsEmpty())) << "nothing waits for the joined ones";
  EXPECT_EQ(ErrorOfStep(1, 1), std::nullopt);
  const size_t dispatches = driver_.submitted.back();
  EXPECT_GT(dispatches, 1U);
  EXPECT_EQ(plan_->Stats().dispatches, dispatches);
  EXPECT_EQ(plan_->Stats().pending, 1U);
  joiner.is_ready = true;
  EXPECT_EQ(plan_->Stats().pending, 0U);
  EXPECT_EQ(ErrorOfStep(1, 1), std::nullopt);
  EXPECT_EQ(driver_.submitted.back(), 1U);
  EXPECT_EQ(plan_->Stats().dispatches, dispatches + 1);
  plan_.reset();
}

TEST_F(PlanTest, TimedStepsAreNotJoined) {
  EveryStep joiner(driver_);
  driver_.step_joiner = &joiner;
  for (const bool profile : {false, true}) {
    driver_.recorded.clear();
    Make(NormsOf(1), !profile, profile);
    EXPECT_THAT(driver_.recorded,
                AllOf(SizeIs(2), Each(Field(&FakeDriver::Recorded::timed, true))));
  }
  plan_.reset();
}

}  // namespace
}  // namespace rullama::gpu
