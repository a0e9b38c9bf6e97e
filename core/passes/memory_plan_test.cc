#include "core/passes/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "core/passes/decompose.h"
#include "core/passes/mini_model_for_test.h"
#include "core/passes/row_demand.h"

namespace rullama {
namespace {

constexpr uint64_t kAlignment = 64;

MemoryPlan Planned(const Graph& graph, const ArenaLimits& limits = {.alignment = kAlignment}) {
  auto plan = PlanMemory(graph, limits);
  EXPECT_TRUE(plan.has_value()) << plan.error().ToString();
  const Status status = VerifyMemoryPlan(graph, *plan, limits.alignment);
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  return *plan;
}

uint64_t BytesWithoutSharing(const Graph& graph) {
  const std::vector<bool> in_arena = InArena(graph);
  uint64_t total = 0;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    if (in_arena[id]) total += *CheckedBytes(graph.type(id), graph.MaxExtents());
  }
  return total;
}

Graph Chain(int length) {
  GraphBuilder b("chain");
  ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 16}});
  for (int i = 0; i < length; ++i) x = b.Add(ops::Softcap{.x = x, .cap = 2});
  b.Output("y", x, RowDemand::kAll);
  return *std::move(b).Finish();
}

TEST(MemoryPlan, AChainNeedsTwoBuffers) { EXPECT_EQ(Planned(Chain(10)).arena_bytes, 2 * 64U); }

TEST(MemoryPlan, OutputsInputsAndStatesAreNotInTheArena) {
  EXPECT_EQ(Planned(Chain(1)).arena_bytes, 0U);
  const Graph model = MiniModel::Build();
  const std::vector<bool> in_arena = InArena(model);
  for (const char* name :
       {"tokens", "logits", "blk.0.k_cache", "blk.0.k_cache.next", "blk.0.scale"}) {
    EXPECT_FALSE(in_arena[model.Find(name)]) << name;
  }
  EXPECT_TRUE(in_arena[model.Find("scaled")]);
}

TEST(MemoryPlan, ModelsShareMostOfTheirMemory) {
  for (const DemandMode mode :
       {DemandMode::kPerOutput, DemandMode::kAllRows, DemandMode::kStateOnly}) {
    auto graph = ApplyRowDemand(MiniModel::Build(), mode);
    ASSERT_TRUE(graph.has_value());
    for (const bool decomposed : {false, true}) {
      if (decomposed) graph = DecomposeAll(*graph);
      ASSERT_TRUE(graph.has_value());
      EXPECT_LT(Planned(*graph, {.alignment = 4}).arena_bytes, BytesWithoutSharing(*graph) / 2);
    }
  }
}

TEST(MemoryPlan, AReshapeCostsNothing) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 16}});
  const ValueId a = b.Add(ops::Softcap{.x = x, .cap = 2}, "a");
  const ValueId r = b.Add(ops::ReshapeTo(a, {4, 4}), "r");
  const ValueId c = b.Add(ops::Softcap{.x = r, .cap = 3}, "c");
  // `a` is read again after `c` is written, so the shared bytes must not change.
  const ValueId d = b.Add(ops::Sum(c, b.Add(ops::ReshapeTo(a, {4, 4}), "r2")), "d");
  b.Output("y", b.Add(ops::Softcap{.x = d, .cap = 4}, "y"), RowDemand::kAll);
  const Graph graph = *std::move(b).Finish();
  const MemoryPlan plan = Planned(graph);
  EXPECT_EQ(plan.offset[graph.Find("a")], plan.offset[graph.Find("r")]);
  EXPECT_EQ(plan.offset[graph.Find("a")], plan.offset[graph.Find("r2")]);
  EXPECT_NE(plan.offset[graph.Find("a")], plan.offset[graph.Find("c")]);
  EXPECT_EQ(plan.arena_bytes, 3 * 64U);
}

TEST(MemoryPlan, AReshapeOfAnOutputOrInputIsNotAliased) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 16}});
  const ValueId a = b.Add(ops::Softcap{.x = x, .cap = 2}, "a");
  const ValueId r = b.Add(ops::ReshapeTo(a, {4, 4}), "r");
  b.Output("a", a, RowDemand::kAll);
  b.Output("y", b.Add(ops::Softcap{.x = r, .cap = 2}, "y"), RowDemand::kAll);
  EXPECT_EQ(Planned(*std::move(b).Finish()).arena_bytes, 64U);
}

TEST(MemoryPlan, OffsetsAreAlignedAndSizesAreAtTheLargestStep) {
  Graph graph = Chain(3);
  graph.max_t = 7;
  EXPECT_EQ(Planned(graph, {.alignment = 256}).arena_bytes, 2 * 512U);
  EXPECT_EQ(Planned(graph, {.alignment = 1}).arena_bytes, 2 * 7 * 64U);
}

TEST(MemoryPlan, RandomGraphsNeverOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    GraphBuilder b("random");
    std::vector<ValueId> values = {b.Input("x", {DType::kF32, {Dim::T(), 8}})};
    const auto any = [&] { return values[random() % values.size()]; };
    for (int i = 0; i < 60; ++i) {
      const ValueId x = any();
      const int64_t width = b.graph().type(x).last().constant;
      switch (random() % 4) {
        case 0:
          values.push_back(b.Add(ops::Concat{.a = x, .b = any(), .axis = 1}));
          break;
        case 1:
          values.push_back(b.Add(ops::Slice{
              .x = x, .axis = 1, .start = 0, .size = 1 + static_cast<int64_t>(random()) % width}));
          break;
        case 2:
          values.push_back(b.Add(ops::ReshapeTo(b.Add(ops::ReshapeTo(x, {1, width})), {width})));
          break;
        default:
          values.push_back(b.Add(ops::Softcap{.x = x, .cap = 2}));
      }
    }
    b.Output("y", values.back(), RowDemand::kAll);
    auto graph = std::move(b).Finish();
    ASSERT_TRUE(graph.has_value()) << graph.error().ToString();
    Planned(*graph, {.alignment = 32});
  }
}

TEST(MemoryPlan, ValuesStayWithinOneBuffer) {
  GraphBuilder b("wide");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 16}});
  std::vector<ValueId> kept;
  for (int i = 0; i < 5; ++i)
    kept.push_back(b.Add(ops::Softcap{.x = x, .cap = static_cast<float>(i + 1)}));
  ValueId sum = kept[0];
  for (int i = 1; i < 5; ++i) sum = b.Add(ops::Binary{.a = sum, .b = kept[i], .fn = RL_BINARY_ADD});
  b.Output("y", sum, RowDemand::kAll);
  const Graph graph = *std::move(b).Finish();
  // Values of 64 bytes, of which buffers of 160 hold two and leave 32 empty.
  const MemoryPlan plan = Planned(graph, {.alignment = 32, .max_buffer_bytes = 170});
  EXPECT_EQ(plan.buffer_bytes, 160U);
  EXPECT_GT(plan.arena_bytes, 320U);
  EXPECT_EQ(Planned(graph, {.alignment = 32}).arena_bytes, 6 * 64U);

  MemoryPlan crossing = plan;
  crossing.buffer_bytes = 96;
  EXPECT_FALSE(VerifyMemoryPlan(graph, crossing, 32).has_value());
  const auto too_small = PlanMemory(graph, {.alignment = 32, .max_buffer_bytes = 63});
  EXPECT_EQ(too_small.error().id, "passes.buffer_size");
}

TEST(MemoryPlan, TheCheckerFindsWrongPlans) {
  const Graph graph = Chain(4);
  const MemoryPlan good = Planned(graph);
  MemoryPlan overlapping = good;
  std::fill(overlapping.offset.begin(), overlapping.offset.end(), 0);
  EXPECT_FALSE(VerifyMemoryPlan(graph, overlapping, kAlignment).has_value());
  MemoryPlan outside = good;
  outside.arena_bytes -= 1;
  EXPECT_FALSE(VerifyMemoryPlan(graph, outside, kAlignment).has_value());
  EXPECT_FALSE(VerifyMemoryPlan(graph, good, 128).has_value()) << "64 is not aligned to 128";
  EXPECT_FALSE(VerifyMemoryPlan(graph, MemoryPlan{}, kAlignment).has_value());
}

TEST(MemoryPlan, SizesThatDoNotFitAreErrors) {
  const TensorType huge(DType::kF32, {Dim::T(), int64_t{1} << 40, int64_t{1} << 30});
  EXPECT_EQ(CheckedBytes(huge, {1, 1}).error().id, "passes.size");
  EXPECT_EQ(CheckedBytes({DType::kF32, {Dim(-1)}}, {1, 1}).error().id, "passes.size");
  EXPECT_EQ(*CheckedBytes({DType::kQ8_0, {2, 64}}, {1, 1}), 2 * 2 * 34U);
  Graph graph = Chain(3);
  EXPECT_EQ(PlanMemory(graph, {.alignment = 48}).error().id, "passes.alignment");
  EXPECT_EQ(PlanMemory(graph, {.alignment = 0}).error().id, "passes.alignment");
}

}  // namespace
}  // namespace rullama
