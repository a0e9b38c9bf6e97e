#include "core/passes/canonicalise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

const TensorType kRowsOf4(DType::kF32, {Dim::T(), 4});

// The canonical form of a built graph. Fails the test if the form does not verify.
Graph Canonical(GraphBuilder b) {
  auto built = std::move(b).Finish();
  EXPECT_TRUE(built.has_value()) << built.error().ToString();
  auto graph = Canonicalise(*built);
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  const Status status = Verify(*graph);
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  return *graph;
}

TEST(Canonicalise, RemovesWhatNoOutputOrStateNeeds) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", kRowsOf4);
  b.Input("unused", kRowsOf4);
  b.Add(ops::Softcap{.x = x, .cap = 2}, "dead");
  b.Output("y", b.Add(ops::Softcap{.x = x, .cap = 3}, "y"), RowDemand::kAll);
  const Graph graph = Canonical(std::move(b));
  EXPECT_EQ(graph.ops.size(), 1U);
  EXPECT_EQ(graph.values.size(), 2U);
  EXPECT_EQ(graph.Find("unused"), kNoValue);
}

TEST(Canonicalise, KeepsStatesThatAreOnlyWritten) {
  GraphBuilder b("g");
  const ValueId pos = b.Input("pos", {DType::kI32, {Dim::T()}});
  const ValueId state = b.State("s", {DType::kI32, {1, 8}});
  b.Add(ops::StateAppend{.state = state, .rows = pos, .pos = pos, .slot = pos}, "s.next");
  const Graph graph = Canonical(std::move(b));
  ASSERT_EQ(graph.ops.size(), 1U);
  EXPECT_EQ(graph.value(graph.Find("s.next")).state, graph.Find("s"));
}

TEST(Canonicalise, ComputesEqualOpsOnce) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", kRowsOf4);
  const TensorType weight_type(DType::kQ8_0, {32, 32});
  const TensorType wide(DType::kF32, {Dim::T(), 32});
  const ValueId w = b.Input("w", wide);
  const ValueId k = b.Add(ops::Linear(w, b.Constant("kv", weight_type)), "k");
  const ValueId v = b.Add(ops::Linear(w, b.Constant("kv", weight_type)), "v");
  b.Output("sum", b.Add(ops::Sum(k, v), "sum"), RowDemand::kAll);
  // Different attributes are different ops.
  b.Output("caps",
           b.Add(ops::Sum(b.Add(ops::Softcap{.x = x, .cap = 2}, "a"),
                          b.Add(ops::Softcap{.x = x, .cap = 3}, "b")),
                 "caps"),
           RowDemand::kAll);
  const Graph graph = Canonical(std::move(b));
  EXPECT_EQ(CountOps(graph, OpKind::kMatMul), 1U);
  EXPECT_EQ(CountOps(graph, OpKind::kSoftcap), 2U);
  const Op& sum = graph.ops[OpOf(graph, "sum")];
  EXPECT_EQ(sum.inputs[0], sum.inputs[1]);
  EXPECT_EQ(graph.Find("v"), kNoValue);
}

TEST(Canonicalise, AttributePaddingDoesNotMatter) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", kRowsOf4);
  rl_topk_attrs one;
  rl_topk_attrs other;
  std::memset(&one, 0x00, sizeof(one));
  std::memset(&other, 0xFF, sizeof(other));
  one.k = other.k = 2;
  const auto first = b.Add(OpKind::kTopK, {x}, OpAttrs(one), "first");
  const auto second = b.Add(OpKind::kTopK, {x}, OpAttrs(other), "second");
  b.Output("y", b.Add(ops::Sum(first[0], second[0]), "y"), RowDemand::kAll);
  EXPECT_EQ(CountOps(Canonical(std::move(b)), OpKind::kTopK), 1U);
}

TEST(Canonicalise, AppendsAreNeverMerged) {
  const Graph model = MiniModel::Build();
  auto graph = Canonicalise(model);
  ASSERT_TRUE(graph.has_value());
  EXPECT_EQ(CountOps(*graph, OpKind::kStateAppend), CountOps(model, OpKind::kStateAppend));
}

TEST(Canonicalise, DropsIdentitiesAndFoldsChains) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", kRowsOf4);
  ValueId y = b.Add(ops::Cast{.x = x, .dtype = DType::kF32}, "cast");
  y = b.Add(ops::Copy{y}, "copy");
  y = b.Add(ops::Affine{.x = y, .scale = 1, .bias = 0}, "identity");
  y = b.Add(ops::Slice{.x = y, .axis = 1, .start = 0, .size = 4}, "all");
  y = b.Add(ops::Affine{.x = y, .scale = 2, .bias = 1}, "first");
  y = b.Add(ops::Affine{.x = y, .scale = 3, .bias = 5}, "second");
  y = b.Add(ops::ReshapeTo(y, {2, 2}), "square");
  y = b.Add(ops::ReshapeTo(y, {4, 1}), "column");
  b.Output("y", y, RowDemand::kAll);
  const Graph graph = Canonical(std::move(b));
  ASSERT_EQ(graph.ops.size(), 2U);
  const auto& affine = graph.ops[0].As<rl_affine_attrs>();
  EXPECT_EQ(affine.scale, 6.0F);
  EXPECT_EQ(affine.bias, 8.0F);
  EXPECT_EQ(graph.ops[0].inputs[0], graph.Find("x"));
  EXPECT_EQ(graph.ops[1].kind, OpKind::kReshape);
  EXPECT_EQ(graph.type(graph.Find("column")), TensorType(DType::kF32, {Dim::T(), 4, 1}));
}

TEST(Canonicalise, KeepsCastsThatConvert) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", kRowsOf4);
  b.Output("y",
           b.Add(ops::Cast{.x = b.Add(ops::Cast{.x = x, .dtype = DType::kF16}, "narrow"),
                           .dtype = DType::kF32},
                 "wide"),
           RowDemand::kAll);
  EXPECT_EQ(CountOps(Canonical(std::move(b)), OpKind::kCast), 2U);
}

TEST(Canonicalise, GivesEachOutputAValueOfItsOwn) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", kRowsOf4);
  const ValueId y = b.Add(ops::Softcap{.x = x, .cap = 2}, "y");
  b.Output("leaf", x, RowDemand::kAll);
  b.Output("folded", b.Add(ops::Copy{x}, "copied"), RowDemand::kAll);
  b.Output("once", y, RowDemand::kAll);
  b.Output("twice", y, RowDemand::kAll);
  const Graph graph = Canonical(std::move(b));
  std::vector<std::string> names;
  std::set<ValueId> values;
  for (const Output& output : graph.outputs) {
    EXPECT_EQ(graph.value(output.value).lifetime, Lifetime::kTransient);
    values.insert(output.value);
    names.push_back(graph.value(output.value).name);
  }
  EXPECT_EQ(values.size(), 4U);
  EXPECT_THAT(names, testing::ElementsAre("x/copy", "copied", "y", "y/copy"));
}

TEST(Canonicalise, RefusesOneInputNameOfTwoTypes) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", kRowsOf4);
  const ValueId other = b.Input("x", {DType::kF32, {Dim::T(), 8}});
  b.Output("y", b.Add(ops::Concat{.a = x, .b = other, .axis = 1}, "y"), RowDemand::kAll);
  const auto graph = Canonicalise(*std::move(b).Finish());
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().id, "passes.duplicate_name");
}

TEST(Canonicalise, MergesInputsAndMakesConstantNamesUnique) {
  GraphBuilder b("g");
  const ValueId ids = b.Input("ids", {DType::kI32, {Dim::T()}});
  const ValueId again = b.Input("ids", {DType::kI32, {Dim::T()}});
  const ValueId whole =
      b.Add(ops::GatherRows{.table = b.Constant("w", {DType::kF32, {8, 4}}), .ids = ids}, "whole");
  const ValueId part =
      b.Add(ops::GatherRows{.table = b.Constant("w", {DType::kF32, {2, 4}}), .ids = again}, "part");
  b.Output("y", b.Add(ops::Sum(whole, part), "y"), RowDemand::kAll);
  const Graph graph = Canonical(std::move(b));
  EXPECT_NE(graph.Find("w~2"), kNoValue);
  EXPECT_EQ(graph.value(graph.Find("w~2")).source, "w");
  EXPECT_EQ(graph.ops[0].inputs[1], graph.ops[1].inputs[1]);
}

TEST(Canonicalise, ChangesNothingTheSecondTime) {
  auto once = Canonicalise(MiniModel::Build());
  ASSERT_TRUE(once.has_value());
  auto twice = Canonicalise(*once);
  ASSERT_TRUE(twice.has_value());
  ASSERT_EQ(once->values.size(), twice->values.size());
  for (size_t i = 0; i < once->values.size(); ++i) {
    EXPECT_EQ(once->values[i].name, twice->values[i].name);
  }
  EXPECT_EQ(once->ops.size(), twice->ops.size());
}

}  // namespace
}  // namespace rullama
