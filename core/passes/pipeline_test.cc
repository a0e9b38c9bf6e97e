#include "core/passes/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<std::vector<std::string>> SupportAll(int, const Graph& graph) {
  return std::vector<std::string>(graph.ops.size());
}

// A device that supports only primitives.
Result<std::vector<std::string>> SupportPrimitives(int, const Graph& graph) {
  std::vector<std::string> reasons;
  for (const Op& op : graph.ops) {
    reasons.emplace_back(InfoOf(op.kind).trait == OpTrait::kComposite ? "composite" : "");
  }
  return reasons;
}

PipelineOptions OptionsFor(DemandMode demand, int64_t max_t, int64_t max_r) {
  PipelineOptions options;
  options.bucket = {.max_t = max_t, .max_r = max_r, .demand = demand};
  options.arenas = {{.alignment = 64}, {.alignment = 32}};
  return options;
}

TEST(Pipeline, BuildsEveryBucketForComposersAndPrimitivesAlike) {
  for (const DemandMode mode :
       {DemandMode::kPerOutput, DemandMode::kAllRows, DemandMode::kStateOnly}) {
    for (const SupportQuery& query : {SupportQuery(SupportAll), SupportQuery(SupportPrimitives)}) {
      for (const int64_t rows : {1, 8, 512}) {
        auto program = BuildProgram(MiniModel::Build(), query, OptionsFor(mode, rows, 1));
        ASSERT_TRUE(program.has_value()) << program.error().ToString();
        ASSERT_EQ(program->segments.size(), 1U);
        const PlannedSegment& segment = program->segments[0];
        EXPECT_EQ(segment.graph.max_t, rows);
        EXPECT_EQ(segment.graph.max_r, mode == DemandMode::kPerOutput ? 1 : 0);
        EXPECT_TRUE(Verify(segment.graph).has_value());
        EXPECT_TRUE(VerifyMemoryPlan(segment.graph, segment.memory, 64).has_value());
        EXPECT_EQ(program->report.ops_per_device[0], segment.graph.ops.size());
      }
    }
  }
}

TEST(Pipeline, TheHostGathersFirstAndOnce) {
  PipelineOptions options = OptionsFor(DemandMode::kPerOutput, 8, 1);
  options.policy.host_device = 1;
  options.policy.host_ops = {"gather_rows"};
  options.policy.host_weights = {"per_layer_token_embd"};
  auto program = BuildProgram(MiniModel::Build(), SupportAll, options);
  ASSERT_TRUE(program.has_value()) << program.error().ToString();
  ASSERT_EQ(program->segments.size(), 2U);
  EXPECT_EQ(program->segments[0].device, 1);
  EXPECT_EQ(program->segments[1].device, 0);
  std::vector<std::string> exports;
  for (const Output& output : program->segments[0].graph.outputs) exports.push_back(output.name);
  EXPECT_THAT(exports, ElementsAre("blk.0.ple", "blk.1.ple", "blk.2.ple"));
  for (const Value& value : program->segments[1].graph.values) {
    EXPECT_THAT(value.source, testing::Not(HasSubstr("per_layer_token_embd")));
  }
}

TEST(Pipeline, DumpsEachPass) {
  PipelineOptions options = OptionsFor(DemandMode::kPerOutput, 8, 1);
  std::vector<std::string> passes;
  options.dump = [&](std::string_view pass, const Graph&) { passes.emplace_back(pass); };
  ASSERT_TRUE(BuildProgram(MiniModel::Build(), SupportAll, options).has_value());
  EXPECT_THAT(passes, ElementsAre("canonicalise", "rotate_caches", "row_demand", "placement",
                                  "schedule", "segment"));
}

TEST(Pipeline, ErrorsNameThePass) {
  const auto refuse_all = [](int, const Graph& graph) -> Result<std::vector<std::string>> {
    return std::vector<std::string>(graph.ops.size(), "no");
  };
  auto program =
      BuildProgram(MiniModel::Build(), refuse_all, OptionsFor(DemandMode::kPerOutput, 1, 1));
  ASSERT_FALSE(program.has_value());
  EXPECT_EQ(program.error().id, "placement.refused");
  EXPECT_THAT(program.error().message, HasSubstr("pass placement: op 'embd'"));
}

TEST(Pipeline, BoundsAndAlignmentsAreChecked) {
  const Graph model = MiniModel::Build();
  for (const auto& [max_t, max_r] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 2}, {1, -1}}) {
    auto program =
        BuildProgram(model, SupportAll, OptionsFor(DemandMode::kPerOutput, max_t, max_r));
    ASSERT_FALSE(program.has_value());
    EXPECT_EQ(program.error().id, "passes.bounds");
  }
  PipelineOptions options = OptionsFor(DemandMode::kPerOutput, 1, 1);
  options.arenas.clear();
  auto program = BuildProgram(model, SupportAll, options);
  ASSERT_FALSE(program.has_value());
  EXPECT_EQ(program.error().id, "passes.devices");
}

}  // namespace
}  // namespace rullama
