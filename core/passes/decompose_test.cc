#include "core/passes/decompose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

using testing::ElementsAre;

TEST(Decompose, ExactlyTheCompositesHaveADecomposition) {
  for (const OpInfo& info : AllOps()) {
    EXPECT_EQ(HasDecomposition(info.kind), info.trait == OpTrait::kComposite) << info.name;
  }
}

TEST(Decompose, OnlyPrimitivesAreLeftInTheEnd) {
  const Graph model = MiniModel::Build();
  auto graph = DecomposeAll(model);
  ASSERT_TRUE(graph.has_value()) << graph.error().ToString();
  const Status status = Verify(*graph);
  ASSERT_TRUE(status.has_value()) << status.error().ToString();
  for (const Op& op : graph->ops) {
    EXPECT_NE(InfoOf(op.kind).trait, OpTrait::kComposite) << NameOf(op.kind);
  }
  // Every result of the model is still there, with its type.
  for (const Op& op : model.ops) {
    if (op.kind == OpKind::kTopPMask) continue;
    const Value& value = model.value(op.results[0]);
    const ValueId same = graph->Find(value.name);
    ASSERT_NE(same, kNoValue) << value.name;
    EXPECT_EQ(graph->type(same), value.type) << value.name;
  }
}

TEST(Decompose, TakesOneLevelAtATimeAndOnlyWhatIsRefused) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId w = b.Constant("w", {DType::kF32, {4}});
  const ValueId scale = b.Constant("scale", {DType::kF32, {1}});
  const ValueId y = b.Add(
      ops::ResidualNorm{.residual = x, .x = x, .weight = w, .scale = scale, .eps = 1e-6F}, "y");
  b.Output("z", b.Add(ops::Softcap{.x = y, .cap = 2}, "z"), RowDemand::kAll);
  auto graph = Decompose(*std::move(b).Finish(), {true, false});
  ASSERT_TRUE(graph.has_value()) << graph.error().ToString();
  std::vector<std::string> ops;
  for (const Op& op : graph->ops) {
    ops.push_back(graph->value(op.results[0]).name + " " + std::string(NameOf(op.kind)));
  }
  EXPECT_THAT(ops, ElementsAre("y/norm rms_norm", "y/sum binary", "y scale", "z softcap"));
}

TEST(Decompose, KeepsTheDeviceOfTheComposite) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  b.Output("y", b.Add(ops::Softmax{b.Add(ops::Softcap{.x = x, .cap = 2}, "c")}, "y"),
           RowDemand::kAll);
  Graph source = *std::move(b).Finish();
  source.ops[1].device = 1;
  auto graph = Decompose(source, {false, true});
  ASSERT_TRUE(graph.has_value());
  EXPECT_EQ(graph->ops[0].device, 0);
  for (size_t i = 1; i < graph->ops.size(); ++i) EXPECT_EQ(graph->ops[i].device, 1);
}

}  // namespace
}  // namespace rullama
