#include "core/diff/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/builder.h"
#include "core/ir/verify.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

// A cache that is read, appended to and read by nobody afterwards, and a value computed behind it.
Graph Cached() {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 2, 8}});
  const ValueId pos = b.Input("pos", {DType::kI32, {Dim::T()}});
  const ValueId slot = b.Input("slot", {DType::kI32, {Dim::T()}});
  const ValueId past = b.Input("past", {DType::kI32, {1}});
  const TensorType cache(DType::kF32, {1, 16, 2, 8});
  const ValueId k = b.State("k", cache);
  const ValueId v = b.State("v", cache);
  const ValueId rotated = b.Rope(x, pos, kNoValue, 1e4F, 8, "rotated");
  const ValueId mix =
      b.Attention(x, rotated, x, k, v, {pos, slot, pos, slot, past}, RL_MASK_CAUSAL, 0, 1, "mix");
  b.StateAppend(k, rotated, pos, slot, "k.next");
  b.StateAppend(v, x, pos, slot, "v.next");
  const ValueId flat = b.Reshape(mix, {16}, "flat");
  b.Output("best", b.ArgMax(flat, "best"), RowDemand::kAll);
  auto graph = std::move(b).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *std::move(graph);
}

TEST(WatchTest, ComparableValuesAreFloatsOfTheStep) {
  EXPECT_THAT(ComparableValues(Cached()), ElementsAre("rotated", "mix", "flat"));
}

TEST(WatchTest, OutputsAreAddedOnce) {
  const Graph graph = WithOutputs(Cached(), {"mix", "best", "no such value"});
  ASSERT_EQ(graph.outputs.size(), 2U);
  EXPECT_EQ(graph.outputs[1].name, "mix");
  EXPECT_EQ(graph.outputs[1].demand, RowDemand::kAll);
  EXPECT_TRUE(Verify(graph));
}

TEST(WatchTest, StatesBecomeInputs) {
  const Graph graph = WithoutStates(Cached());
  const Status valid = Verify(graph);
  EXPECT_TRUE(valid) << valid.error().ToString();
  EXPECT_EQ(graph.ops.size(), 4U);
  for (const Value& value : graph.values) EXPECT_NE(value.lifetime, Lifetime::kState) << value.name;
  EXPECT_EQ(graph.value(graph.Find("k")).lifetime, Lifetime::kInput);
  EXPECT_EQ(graph.Find("k.next"), kNoValue);
  EXPECT_EQ(graph.outputs[0].value, graph.Find("best"));
}

}  // namespace
}  // namespace rullama
