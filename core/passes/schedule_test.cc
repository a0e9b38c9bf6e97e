#include "core/passes/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

using testing::ElementsAre;

Graph Scheduled(const Graph& source) {
  auto graph = Schedule(source);
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  const Status status = Verify(*graph);
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  return *graph;
}

std::vector<std::string> NamesOfOps(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops) names.push_back(graph.value(op.results[0]).name);
  return names;
}

TEST(Schedule, KeepsAnOrderThatIsGood) {
  const Graph model = MiniModel::Build();
  EXPECT_EQ(NamesOfOps(Scheduled(model)), NamesOfOps(model));
}

// Two readers and an append in the wrong order, as emitted by a model that appends layer by layer.
TEST(Schedule, AppendsComeAfterAllReadersOfTheOldVersion) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kI32, {Dim::T()}});
  const ValueId past = b.Input("past", {DType::kI32, {1}});
  const ValueId logits = b.Input("logits", {DType::kF32, {Dim::T(), 4}});
  const ValueId state = b.State("s", {DType::kI32, {1, 8}});
  const auto read = [&](ValueId from, const char* name) {
    return b.Add(ops::WithRows(ops::Penalties{.logits = from,
                                              .history = state,
                                              .tokens = x,
                                              .last_n = 8,
                                              .repeat = 1.5F,
                                              .frequency = 0,
                                              .presence = 0},
                               ops::AttentionRows{x, x, x, x, past}),
                 name);
  };
  const ValueId first = read(logits, "first");
  b.Add(ops::StateAppend{.state = state, .rows = x, .pos = x, .slot = x}, "s.next");
  b.Output("y", read(first, "second"), RowDemand::kAll);
  EXPECT_THAT(NamesOfOps(Scheduled(*std::move(b).Finish())),
              ElementsAre("first", "second", "s.next"));
}

TEST(Schedule, AReaderOfTheOldVersionThatNeedsTheNewOneIsAnError) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kI32, {Dim::T()}});
  const ValueId past = b.Input("past", {DType::kI32, {1}});
  const ValueId logits = b.Input("logits", {DType::kF32, {Dim::T(), 4}});
  const ValueId state = b.State("s", {DType::kI32, {1, 8}});
  const ValueId next =
      b.Add(ops::StateAppend{.state = state, .rows = x, .pos = x, .slot = x}, "s.next");
  const ValueId new_read = b.Add(ops::WithRows(ops::Penalties{.logits = logits,
                                                              .history = next,
                                                              .tokens = x,
                                                              .last_n = 8,
                                                              .repeat = 1.5F,
                                                              .frequency = 0,
                                                              .presence = 0},
                                               ops::AttentionRows{x, x, x, x, past}),
                                 "new");
  const ValueId old_read = b.Add(ops::WithRows(ops::Penalties{.logits = new_read,
                                                              .history = state,
                                                              .tokens = x,
                                                              .last_n = 8,
                                                              .repeat = 1.5F,
                                                              .frequency = 0,
                                                              .presence = 0},
                                               ops::AttentionRows{x, x, x, x, past}),
                                 "old");
  b.Output("y", old_read, RowDemand::kAll);
  auto graph = Schedule(*std::move(b).Finish());
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().id, "passes.cycle");
}

TEST(Schedule, WorkOfTheHostThatDependsOnInputsOnlyGoesFirst) {
  Graph model = MiniModel::Build();
  for (Op& op : model.ops) {
    const std::string& name = model.value(op.results[0]).name;
    op.device = name.ends_with(".ple") ? 1 : 0;
  }
  const Graph graph = Scheduled(model);
  std::vector<int> devices;
  for (const Op& op : graph.ops) devices.push_back(op.device);
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  EXPECT_THAT(devices, ElementsAre(1, 0));
}

TEST(Schedule, GroupsOpsOfADevice) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId a = b.Add(ops::Softcap{.x = x, .cap = 1}, "a");      // device 0
  const ValueId host = b.Add(ops::Softcap{.x = a, .cap = 2}, "h");   // device 1
  const ValueId c = b.Add(ops::Softcap{.x = x, .cap = 3}, "c");      // device 0
  const ValueId other = b.Add(ops::Softcap{.x = c, .cap = 4}, "i");  // device 1
  b.Output("y", b.Add(ops::Sum(host, other), "y"), RowDemand::kAll);
  Graph source = *std::move(b).Finish();
  source.ops[1].device = source.ops[3].device = 1;
  EXPECT_THAT(NamesOfOps(Scheduled(source)), ElementsAre("a", "c", "h", "i", "y"));
}

TEST(Schedule, AnEmptyGraphStaysEmpty) { EXPECT_TRUE(Scheduled(Graph{}).ops.empty()); }

}  // namespace
}  // namespace rullama
