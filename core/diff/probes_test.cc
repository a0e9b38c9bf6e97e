#include "core/diff/probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/builder.h"
#include "core/ir/verify.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

// A cache that is read, appended to and read by nobody afterwards, and a value computed after it.
Graph Cached() {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 2, 8}});
  const ValueId pos = b.Input("pos", {DType::kI32, {Dim::T()}});
  const ValueId slot = b.Input("slot", {DType::kI32, {Dim::T()}});
  const ValueId past = b.Input("past", {DType::kI32, {1}});
  const TensorType cache(DType::kF32, {1, 16, 2, 8});
  const ValueId k = b.State("k", cache);
  const ValueId v = b.State("v", cache);
  const ValueId rotated =
      b.Add(ops::Rope{.x = x, .pos = pos, .theta = 1e4F, .n_rot = 8}, "rotated");
  const ValueId mix = b.Add(ops::WithRows(ops::Attention{.q = x,
                                                         .k_new = rotated,
                                                         .v_new = x,
                                                         .k_state = k,
                                                         .v_state = v,
                                                         .mask = RL_MASK_CAUSAL,
                                                         .window = 0,
                                                         .scale = 1},
                                          ops::AttentionRows{pos, slot, pos, slot, past}),
                            "mix");
  b.Add(ops::StateAppend{.state = k, .rows = rotated, .pos = pos, .slot = slot}, "k.next");
  b.Add(ops::StateAppend{.state = v, .rows = x, .pos = pos, .slot = slot}, "v.next");
  const ValueId flat = b.Add(ops::ReshapeTo(mix, {16}), "flat");
  b.Output("best", b.Add(ops::ArgMax{flat}, "best"), RowDemand::kAll);
  auto graph = std::move(b).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *std::move(graph);
}

TEST(ProbesTest, ComparableValuesAreFloatsOfTheStep) {
  EXPECT_THAT(ComparableValues(Cached()), ElementsAre("rotated", "mix", "flat"));
}

TEST(ProbesTest, OutputsAreAddedOnce) {
  const Graph graph = WithOutputs(Cached(), {"mix", "best", "no such value"});
  ASSERT_EQ(graph.outputs.size(), 2U);
  EXPECT_EQ(graph.outputs[1].name, "mix");
  EXPECT_EQ(graph.outputs[1].demand, RowDemand::kAll);
  EXPECT_TRUE(Verify(graph));
}

TEST(ProbesTest, StatesBecomeInputs) {
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
