// Sums of times that are made up.
#include "cli/reports/op_profile.h"

#include <gtest/gtest.h>

#include <utility>

#include "core/ir/builder.h"

namespace rullama::cli {
namespace {

using std::chrono::microseconds;

// norm = rms_norm(x); y = copy(norm), in layer 3.
class OpProfilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GraphBuilder builder("g");
    const ValueId x = builder.Input("x", {DType::kF32, {Dim::T(), 8}});
    const ValueId norm = builder.Add(ops::RmsNorm{.x = x, .eps = 1}, "norm");
    builder.Output("y", builder.Add(ops::Copy{.x = norm}, "blk.3.y"), RowDemand::kAll);
    auto graph = std::move(builder).Finish();
    ASSERT_TRUE(graph) << graph.error().ToString();
    graph_ = *std::move(graph);
    rows_.tokens = rows_.pos = rows_.slot = {0, 0};
  }

  // A step of one segment of 100 us in which two workers share the norm, and one copies.
  void Step() {
    StepSpan span;
    span.kind = StepSpan::Kind::kSegment;
    span.begin = start_;
    span.end = start_ + microseconds(100);
    profiler_.OnSpan(span);
    Op(0, 0, 10, 40);
    Op(1, 1, 50, 70);
    Op(0, 1, 20, 50);
    span.kind = StepSpan::Kind::kStep;
    profiler_.OnSpan(span);
  }
  void Op(uint32_t op, uint32_t worker, int64_t begin, int64_t end) {
    profiler_.OnOp(
        {graph_, rows_, 0, "fake"},
        {std::span(&op, 1), worker, start_ + microseconds(begin), start_ + microseconds(end)});
  }

  Graph graph_;
  StepRows rows_;
  StepSpan::Clock::time_point start_ = StepSpan::Clock::now();
  OpProfiler profiler_;
};

TEST_F(OpProfilerTest, AnOpLastsFromItsFirstWorkerToItsLast) {
  Step();
  Step();
  const StepProfile profile = profiler_.Take();
  EXPECT_EQ(profile.steps, 2);
  EXPECT_NEAR(profile.seconds, 200e-6, 1e-12);
  EXPECT_NEAR(profile.op_seconds(), 2 * (40 + 20) * 1e-6, 1e-12);
  ASSERT_EQ(profile.ops.size(), 2U);
  const ProfiledOp& norm = profile.ops[0];
  EXPECT_EQ(norm.kind, "rms_norm");
  EXPECT_EQ(norm.device, "fake");
  EXPECT_EQ(norm.layer, std::nullopt);
  EXPECT_EQ(norm.total.executions, 2);
  EXPECT_NEAR(norm.total.seconds, 80e-6, 1e-12);
  EXPECT_EQ(norm.total.bytes, 2 * 2 * 2 * 8 * 4) << "of two steps, not of each worker";
  EXPECT_EQ(profile.ops[1].layer, 3);
  EXPECT_NEAR(profile.ops[1].total.byte_rate(), 2 * 2 * 8 * 4 / 20e-6, 1);
}

TEST_F(OpProfilerTest, AWorkerIsBusyWhileItRunsOps) {
  Step();
  const StepProfile one = profiler_.Take();
  ASSERT_EQ(one.workers.size(), 2U);
  EXPECT_EQ(one.workers[0].device, "fake");
  EXPECT_EQ(one.workers[0].worker, 0U);
  EXPECT_NEAR(one.workers[0].seconds, 30e-6, 1e-12);
  EXPECT_EQ(one.workers[1].worker, 1U);
  EXPECT_NEAR(one.workers[1].seconds, (20 + 30) * 1e-6, 1e-12);

  Op(0, 0, 0, 5000);  // a stall
  const StepProfile stalled = profiler_.Take();
  ASSERT_EQ(stalled.workers.size(), 1U);
  const StepProfile median = MedianOf({one, stalled, one});
  ASSERT_EQ(median.workers.size(), 2U);
  EXPECT_NEAR(median.workers[0].seconds, 30e-6, 1e-12);
  EXPECT_NEAR(median.workers[1].seconds, 50e-6, 1e-12);
}

// One run in which something else had the processor says nothing about the op.
TEST_F(OpProfilerTest, OfSeveralRunsTheMedianCounts) {
  std::vector<StepProfile> runs;
  for (const int64_t stall : {0, 5000, 10}) {
    StepSpan span;
    span.kind = StepSpan::Kind::kSegment;
    span.begin = start_;
    span.end = start_ + microseconds(100 + stall);
    profiler_.OnSpan(span);
    Op(0, 0, 10, 40 + stall);
    Op(1, 0, 50 + stall, 70 + stall);
    span.kind = StepSpan::Kind::kStep;
    profiler_.OnSpan(span);
    runs.push_back(profiler_.Take());
  }
  const StepProfile profile = MedianOf(runs);
  EXPECT_EQ(profile.steps, 1);
  EXPECT_NEAR(profile.seconds, 110e-6, 1e-12);
  EXPECT_NEAR(profile.op_seconds(), 60e-6, 1e-12);
  ASSERT_EQ(profile.ops.size(), 2U);
  const OpTotal& norm = profile.ops[0].total;
  EXPECT_NEAR(norm.seconds, 40e-6, 1e-12);
  EXPECT_EQ(norm.executions, 1);
  EXPECT_EQ(norm.bytes, 2 * 2 * 8 * 4) << "of one run";
  EXPECT_NEAR(norm.spread(), 5000.0 / 40, 1e-6);
  EXPECT_EQ(MedianOf({runs[0]}).seconds, runs[0].seconds);
}

TEST_F(OpProfilerTest, TakeBeginsAnew) {
  Step();
  (void)profiler_.Take();
  EXPECT_TRUE(profiler_.Take().ops.empty());
  Step();
  const StepProfile profile = profiler_.Take();
  EXPECT_EQ(profile.steps, 1);
  EXPECT_EQ(profile.ops.at(0).total.executions, 1);
}

TEST_F(OpProfilerTest, KindsAreLongestFirstAndLayersAscend) {
  Step();
  const StepProfile profile = profiler_.Take();
  const auto kinds = KindsOf(profile);
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_EQ(kinds[0].name, "rms_norm");
  EXPECT_EQ(kinds[0].device, "fake");
  EXPECT_EQ(kinds[1].name, "copy");
  const auto layers = LayersOf(profile);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].name, "outside");
  EXPECT_EQ(layers[1].layer, 3);
}

TEST(LayerOfName, IsTheNumberOfABlock) {
  EXPECT_EQ(LayerOfName("blk.12.attn.q"), 12);
  EXPECT_EQ(LayerOfName("blk.12"), std::nullopt);
  EXPECT_EQ(LayerOfName("blk.-1.x"), std::nullopt);
  EXPECT_EQ(LayerOfName("output"), std::nullopt);
}

}  // namespace
}  // namespace rullama::cli
