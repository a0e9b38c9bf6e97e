#include "core/passes/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> InputsOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value& value : graph.values) {
    if (value.lifetime == Lifetime::kInput) names.push_back(value.name);
  }
  return names;
}

std::vector<std::string> OutputsOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const Output& output : graph.outputs) names.push_back(output.name);
  return names;
}

std::vector<Segment> Segments(const Graph& graph) {
  auto segments = Partition(graph);
  EXPECT_TRUE(segments.has_value()) << segments.error().ToString();
  for (const Segment& segment : *segments) {
    const Status status = Verify(segment.graph);
    EXPECT_TRUE(status.has_value()) << status.error().ToString();
  }
  return *segments;
}

// a and y on device 0, h between them on device 1.
Graph Sandwich() {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId a = b.Add(ops::Softcap{.x = x, .cap = 1}, "a");
  const ValueId h = b.Add(ops::Softcap{.x = a, .cap = 2}, "h");
  b.Output("out", b.Add(ops::Sum(b.Add(ops::Sum(h, a), "sum"), x), "y"), RowDemand::kAll);
  Graph graph = *std::move(b).Finish();
  graph.ops[1].device = 1;
  return graph;
}

TEST(Partition, OneDeviceIsOneSegment) {
  const Graph model = MiniModel::Build();
  const auto segments = Segments(model);
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].graph.ops.size(), model.ops.size());
  EXPECT_EQ(segments[0].graph.name, model.name);
  EXPECT_THAT(OutputsOf(segments[0].graph), ElementsAre("logits", "token"));
}

TEST(Partition, ValuesCrossByName) {
  const auto segments = Segments(Sandwich());
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_THAT(InputsOf(segments[0].graph), ElementsAre("x"));
  EXPECT_THAT(OutputsOf(segments[0].graph), ElementsAre("a"));
  EXPECT_EQ(segments[1].device, 1);
  EXPECT_THAT(InputsOf(segments[1].graph), ElementsAre("a"));
  EXPECT_THAT(OutputsOf(segments[1].graph), ElementsAre("h"));
  EXPECT_THAT(InputsOf(segments[2].graph), ElementsAre("x", "a", "h"));
  EXPECT_THAT(OutputsOf(segments[2].graph), ElementsAre("out"));
}

TEST(Partition, AnOutputThatCrossesGoesUnderItsOwnName) {
  Graph graph = Sandwich();
  graph.outputs.push_back({"early", graph.Find("a"), RowDemand::kAll});
  const auto segments = Segments(graph);
  EXPECT_THAT(OutputsOf(segments[0].graph), ElementsAre("early"));
  EXPECT_THAT(InputsOf(segments[1].graph), ElementsAre("early"));
}

TEST(Partition, NamesThatWouldBeMixedUpAreRefused) {
  Graph graph = Sandwich();
  graph.outputs[0].name = "a";
  auto segments = Partition(graph);
  ASSERT_FALSE(segments.has_value());
  EXPECT_EQ(segments.error().id, "passes.output_name");
}

TEST(Partition, OutputsAreValuesOfTheirOwn) {
  Graph leaf = Sandwich();
  leaf.outputs.push_back({"leaf", leaf.Find("x"), RowDemand::kAll});
  ASSERT_FALSE(Partition(leaf).has_value());
  EXPECT_EQ(Partition(leaf).error().id, "passes.output_leaf");
  Graph twice = Sandwich();
  twice.outputs.push_back({"again", twice.Find("y"), RowDemand::kAll});
  ASSERT_FALSE(Partition(twice).has_value());
  EXPECT_EQ(Partition(twice).error().id, "passes.output_leaf");
}

TEST(Partition, AStateLivesOnOneDevice) {
  Graph model = MiniModel::Build();
  model.ops[OpOf(model, "blk.2.attn")].device = 1;
  auto segments = Partition(model);
  ASSERT_FALSE(segments.has_value());
  EXPECT_EQ(segments.error().id, "passes.state_split");
  EXPECT_THAT(segments.error().message, HasSubstr("'blk.1.k_cache'"));
}

// An append in one segment, a reader of the new version in a later one on the same device.
TEST(Partition, LaterVersionsKeepTheNameOfTheState) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kI32, {Dim::T()}});
  const ValueId past = b.Input("past", {DType::kI32, {1}});
  const ValueId logits = b.Input("logits", {DType::kF32, {Dim::T(), 4}});
  const ValueId next = b.Add(
      ops::StateAppend{
          .state = b.State("s", {DType::kI32, {1, 8}}), .rows = x, .pos = x, .slot = x},
      "s.next");
  const ValueId h = b.Add(ops::Softcap{.x = logits, .cap = 2}, "h");
  b.Output("y",
           b.Add(ops::WithRows(ops::Penalties{.logits = h,
                                              .history = next,
                                              .tokens = x,
                                              .last_n = 8,
                                              .repeat = 1.5F,
                                              .frequency = 0,
                                              .presence = 0},
                               ops::AttentionRows{x, x, x, x, past}),
                 "y"),
           RowDemand::kAll);
  Graph graph = *std::move(b).Finish();
  graph.ops[1].device = 1;
  const auto segments = Segments(graph);
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_NE(segments[0].graph.Find("s.next"), kNoValue);
  const ValueId state = segments[2].graph.Find("s");
  ASSERT_NE(state, kNoValue);
  EXPECT_EQ(segments[2].graph.value(state).lifetime, Lifetime::kState);
  EXPECT_EQ(segments[2].graph.value(state).state, state);
}

TEST(Partition, NothingToDoIsNoSegment) { EXPECT_THAT(Segments(Graph{}), IsEmpty()); }

}  // namespace
}  // namespace rullama
