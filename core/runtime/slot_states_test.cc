#include "core/runtime/slot_states.h"

#include <gtest/gtest.h>

#include "core/ir/builder.h"

namespace rullama {
namespace {

constexpr int64_t kTestSlots = 3;

// A graph that appends rows of `state` at the inputs pos and `slot_input`.
Graph Appending(const TensorType& state, const TensorType& rows, std::string_view slot_input) {
  GraphBuilder b("appending");
  const TensorType index(DType::kI32, {Dim::T()});
  const ValueId pos = b.Input(input_names::kPos, index);
  const ValueId slot = b.Input(slot_input, index);
  const ValueId fresh = b.Input("fresh", rows);
  b.Add(ops::StateAppend{.state = b.State("cache", state), .rows = fresh, .pos = pos, .slot = slot},
        "cache.next");
  auto graph = std::move(b).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  return *std::move(graph);
}

TEST(SlotStatesTest, DescribesCachesAndHistories) {
  SlotStates states;
  ASSERT_TRUE(states.AddGraph(Appending({DType::kF16, {kTestSlots, 64, 2, 16}},
                                        {DType::kF16, {Dim::T(), 2, 16}}, input_names::kSlot),
                              4, kTestSlots));
  ASSERT_EQ(states.all().size(), 1U);
  const SlotState& cache = states.all()[0];
  EXPECT_EQ(cache.name, "cache");
  EXPECT_EQ(cache.row_type, "f16[2,16]");
  EXPECT_EQ(cache.rows, 64);
  EXPECT_EQ(cache.row_bytes, 64U);
  EXPECT_EQ(cache.graph, 4U);
  EXPECT_EQ(cache.OffsetOf(2), 2U * 64 * 64);
  EXPECT_EQ(cache.RowsAfter(10), 10);
  EXPECT_EQ(cache.RowsAfter(100), 64);

  SlotStates history;
  ASSERT_TRUE(history.AddGraph(
      Appending({DType::kI32, {kTestSlots, 7}}, {DType::kI32, {Dim::T()}}, input_names::kSlot), 0,
      kTestSlots));
  EXPECT_EQ(history.all()[0].row_bytes, 4U);
  EXPECT_EQ(history.all()[0].OffsetOf(1), 28U);
}

// Values of wanted rows are not a sequence.
TEST(SlotStatesTest, LeavesOutValuesOfWantedRows) {
  GraphBuilder b("keeping");
  const ValueId place = b.Input("place", {DType::kI32, {Dim::R()}});
  b.Add(ops::StateAppend{.state = b.State("kept", {DType::kF32, {8, 1, 4}}),
                         .rows = b.Input("fresh", {DType::kF32, {Dim::R(), 4}}),
                         .pos = place,
                         .slot = place},
        "kept.next");
  SlotStates states;
  ASSERT_TRUE(states.AddGraph(*std::move(b).Finish(), 0, kTestSlots));
  EXPECT_TRUE(states.all().empty());
}

// A part of a graph, as `rullama diff --bisect` runs it, has values of other parts as inputs.
TEST(SlotStatesTest, CachesMayBeInputsOfAPart) {
  GraphBuilder b("part");
  const TensorType index(DType::kI32, {Dim::T()});
  const TensorType fresh(DType::kF32, {Dim::T(), 1, 8});
  const TensorType cache(DType::kF32, {kTestSlots, 64, 1, 8});
  const ValueId pos = b.Input(input_names::kPos, index);
  const ValueId slot = b.Input(input_names::kSlot, index);
  b.Output("out",
           b.Add(ops::Attention{.q = b.Input("q", {DType::kF32, {Dim::T(), 2, 8}}),
                                .k_new = b.Input("k", fresh),
                                .v_new = b.Input("v", fresh),
                                .k_state = b.Input("cache.k", cache),
                                .v_state = b.Input("cache.v", cache),
                                .q_pos = pos,
                                .q_slot = slot,
                                .kv_pos = pos,
                                .kv_slot = slot,
                                .past = b.Input(input_names::kPast, {DType::kI32, {kTestSlots}}),
                                .mask = RL_MASK_CAUSAL,
                                .window = 16,
                                .scale = 1}));
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  SlotStates states;
  ASSERT_TRUE(states.AddGraph(*graph, 0, kTestSlots));
  EXPECT_TRUE(states.all().empty());
  EXPECT_EQ(states.spare(), 0);
}

TEST(SlotStatesTest, RingsMayHaveRowsToSpare) {
  GraphBuilder b("attending");
  const TensorType index(DType::kI32, {Dim::T()});
  const ValueId pos = b.Input(input_names::kPos, index);
  const ValueId slot = b.Input(input_names::kSlot, index);
  const ValueId past = b.Input(input_names::kPast, {DType::kI32, {kTestSlots}});
  const ValueId q = b.Input("q", {DType::kF32, {Dim::T(), 2, 8}});
  const ValueId fresh = b.Input("fresh", {DType::kF32, {Dim::T(), 1, 8}});
  for (const auto& [name, rows, window] :
       {std::tuple("long", 64, 0), std::tuple("ring", 20, 16), std::tuple("longer", 27, 16)}) {
    const ValueId keys = b.State(std::string(name) + ".k", {DType::kF32, {kTestSlots, rows, 1, 8}});
    const ValueId values =
        b.State(std::string(name) + ".v", {DType::kF32, {kTestSlots, rows, 1, 8}});
    b.Output(name, b.Add(ops::Attention{.q = q,
                                        .k_new = fresh,
                                        .v_new = fresh,
                                        .k_state = keys,
                                        .v_state = values,
                                        .q_pos = pos,
                                        .q_slot = slot,
                                        .kv_pos = pos,
                                        .kv_slot = slot,
                                        .past = past,
                                        .mask = RL_MASK_CAUSAL,
                                        .window = window,
                                        .scale = 1}));
    for (const ValueId state : {keys, values}) {
      b.Add(ops::StateAppend{.state = state, .rows = fresh, .pos = pos, .slot = slot});
    }
  }
  auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  SlotStates states;
  ASSERT_TRUE(states.AddGraph(*graph, 0, kTestSlots));
  EXPECT_EQ(states.spare(), 4);
  EXPECT_EQ(states.shortest(), 20);
  EXPECT_EQ(SlotStates().spare(), 0);
}

TEST(SlotStatesTest, RefusesAStateThatIsNoSlots) {
  const TensorType rows(DType::kF32, {Dim::T(), 8});
  SlotStates states;
  for (const Graph& graph :
       {Appending({DType::kF32, {kTestSlots + 1, 4, 8}}, rows, input_names::kSlot),
        Appending({DType::kF32, {kTestSlots, 4, 8}}, rows, "canvas.row")}) {
    const Status added = states.AddGraph(graph, 0, kTestSlots);
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().id, "snapshot.state");
  }
  EXPECT_EQ(states.shortest(), kMaxRows) << "without states nothing wraps";
}

}  // namespace
}  // namespace rullama
