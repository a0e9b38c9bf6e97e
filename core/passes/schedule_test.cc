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

// Two readers and an append in the wrong order, as a model that appends layer by layer emits them.
TEST(Schedule, AppendsComeAfterAllReadersOfTheOldVersion) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kI32, {Dim::T()}});
  const ValueId past = b.Input("past", {DType::kI32, {1}});
  const ValueId logits = b.Input("logits", {DType::kF32, {Dim::T(), 4}});
  const ValueId state = b.State("s", {DType::kI32, {1, 8}});
  const auto read = [&](ValueId from, const char* name) {
    return b.Penalties(from, state, x, {x, x, x, x, past}, 8, 1.5F, 0, 0, name);
  };
  const ValueId first = read(logits, "first");
  b.StateAppend(state, x, x, x, "s.next");
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
  const ValueId next = b.StateAppend(state, x, x, x, "s.next");
  const ValueId new_read = b.Penalties(logits, next, x, {x, x, x, x, past}, 8, 1.5F, 0, 0, "new");
  const ValueId old_read =
      b.Penalties(new_read, state, x, {x, x, x, x, past}, 8, 1.5F, 0, 0, "old");
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
  const ValueId a = b.Softcap(x, 1, "a");      // device 0
  const ValueId host = b.Softcap(a, 2, "h");   // device 1
  const ValueId c = b.Softcap(x, 3, "c");      // device 0
  const ValueId other = b.Softcap(c, 4, "i");  // device 1
  b.Output("y", b.Add(host, other, "y"), RowDemand::kAll);
  Graph source = *std::move(b).Finish();
  source.ops[1].device = source.ops[3].device = 1;
  EXPECT_THAT(NamesOfOps(Scheduled(source)), ElementsAre("a", "c", "h", "i", "y"));
}

TEST(Schedule, AnEmptyGraphStaysEmpty) { EXPECT_TRUE(Scheduled(Graph{}).ops.empty()); }

}  // namespace
}  // namespace rullama
