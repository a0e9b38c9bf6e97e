#include "core/passes/row_demand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

using testing::Not;

Graph Demanded(const Graph& source, DemandMode mode) {
  auto graph = ApplyRowDemand(source, mode);
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  const Status status = Verify(*graph);
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  return *graph;
}

Dim RowsOf(const Graph& graph, std::string_view name) {
  const ValueId id = graph.Find(name);
  EXPECT_NE(id, kNoValue) << name;
  return id == kNoValue ? Dim() : graph.type(id).rows();
}

TEST(RowDemand, EverythingAfterTheLastCacheRunsOnWantedRows) {
  const Graph graph = Demanded(MiniModel::Build(), DemandMode::kPerOutput);
  // Layers 0 and 1 up to the keys and values of layer 1 are needed at all rows.
  for (const char* name : {"scaled", "blk.0.q", "blk.0.attn", "blk.0.out", "blk.1.normed",
                           "blk.1.k16", "blk.1.v16", "blk.0.ple"}) {
    EXPECT_EQ(RowsOf(graph, name), Dim::T()) << name;
  }
  for (const char* name : {"blk.1.q", "blk.1.attn", "blk.1.mid", "blk.1.ple", "blk.2.normed",
                           "blk.2.attn", "blk.2.out", "logits", "u", "token"}) {
    EXPECT_EQ(RowsOf(graph, name), Dim::R()) << name;
  }
}

TEST(RowDemand, GathersEachValueOnce) {
  const Graph graph = Demanded(MiniModel::Build(), DemandMode::kPerOutput);
  std::vector<std::string> gathered;
  for (const Value& value : graph.values) {
    if (value.name.ends_with("/rows")) gathered.push_back(value.name);
  }
  // The residual, the normed input of q, the token ids of two per-layer embeddings, the positions
  // and the slots.
  EXPECT_THAT(gathered, testing::UnorderedElementsAre("blk.0.out/rows", "blk.1.normed/rows",
                                                      "tokens/rows", "pos/rows", "slot/rows"));
}

// The rows of its result come from no rows of their own, so a part of them cannot be computed.
TEST(RowDemand, ScatteredRowsAreComputedWhole) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::R(), 4}});
  const ValueId rows = b.Input("rows", {DType::kI32, {Dim::R()}});
  b.WantedRows(rows);
  b.Output("y", b.Add(ops::ScatterRows{.x = x, .rows = rows}, "scattered"));
  const Graph graph = Demanded(*std::move(b).Finish(), DemandMode::kPerOutput);
  EXPECT_EQ(RowsOf(graph, "scattered"), Dim::T());
  EXPECT_EQ(graph.type(graph.outputs[0].value).rows(), Dim::R());
}

TEST(RowDemand, AttentionKeepsAllFreshKeys) {
  const Graph graph = Demanded(MiniModel::Build(), DemandMode::kPerOutput);
  const Op& attention = graph.ops[OpOf(graph, "blk.2.attn")];
  const auto name = [&](size_t operand) { return graph.value(attention.inputs[operand]).name; };
  EXPECT_EQ(name(1), "blk.1.k16");
  EXPECT_EQ(name(5), "pos/rows");
  EXPECT_EQ(name(6), "slot/rows");
  EXPECT_EQ(name(7), "pos");
  EXPECT_EQ(name(8), "slot");
}

TEST(RowDemand, AllRowsGathersNothing) {
  const Graph graph = Demanded(MiniModel::Build(), DemandMode::kAllRows);
  EXPECT_EQ(graph.rows_input, kNoValue);
  EXPECT_EQ(graph.Find("rows"), kNoValue);
  EXPECT_EQ(RowsOf(graph, "logits"), Dim::T());
  EXPECT_EQ(graph.ops.size(), MiniModel::Build().ops.size());
  for (const Output& output : graph.outputs) EXPECT_EQ(output.demand, RowDemand::kAll);
}

// A graph may follow the wanted rows itself, to combine them with inputs of R rows. The values in
// front of them are computed at those rows as if an output had asked.
TEST(RowDemand, AGatherOfTheWantedRowsIsADemand) {
  GraphBuilder b("gathers");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 8}});
  const ValueId rows = b.Input(input_names::kRows, {DType::kI32, {Dim::R()}});
  b.WantedRows(rows);
  const ValueId settings = b.Input("settings", {DType::kF32, {Dim::R(), 1}});
  const ValueId doubled = b.Add(ops::Affine{.x = x, .scale = 2}, "doubled");
  const ValueId wanted = b.Add(ops::GatherRows{.table = doubled, .ids = rows}, "wanted");
  b.Output("y", b.Add(ops::Product(wanted, settings), "product"));
  b.Output("z", b.Add(ops::Affine{.x = doubled, .scale = 3}, "tripled"));
  const Graph source = *std::move(b).Finish();

  const Graph graph = Demanded(source, DemandMode::kPerOutput);
  EXPECT_EQ(graph.Find("wanted"), kNoValue);
  EXPECT_EQ(CountOps(graph, OpKind::kGatherRows), 1U);
  for (const char* name : {"x/rows", "doubled", "product", "tripled"}) {
    EXPECT_EQ(RowsOf(graph, name), Dim::R()) << name;
  }
  EXPECT_TRUE(Demanded(source, DemandMode::kStateOnly).ops.empty());
  // All rows of "doubled" are computed for "z", so that the wanted ones are gathered from it.
  const Graph all = Demanded(source, DemandMode::kAllRows);
  EXPECT_EQ(RowsOf(all, "tripled"), Dim::T());
  EXPECT_EQ(RowsOf(all, "doubled"), Dim::T());
  EXPECT_EQ(RowsOf(all, "doubled/rows"), Dim::R());
}

TEST(RowDemand, StateOnlyStopsAtTheLastCache) {
  const Graph graph = Demanded(MiniModel::Build(), DemandMode::kStateOnly);
  EXPECT_TRUE(graph.outputs.empty());
  EXPECT_EQ(CountOps(graph, OpKind::kStateAppend), 5U);
  EXPECT_EQ(CountOps(graph, OpKind::kAttention), 1U);
  EXPECT_NE(graph.Find("blk.1.k16"), kNoValue);
  for (const char* name : {"blk.1.q", "blk.1.attn", "logits", "rows", "seed"}) {
    EXPECT_EQ(graph.Find(name), kNoValue) << name;
  }
}

TEST(RowDemand, AnOutputOfAllRowsIsNotGathered) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  b.WantedRows(b.Input("rows", {DType::kI32, {Dim::R()}}));
  const ValueId y = b.Add(ops::Softcap{.x = x, .cap = 2}, "y");
  b.Output("all", y, RowDemand::kAll);
  b.Output("some", b.Add(ops::Softcap{.x = y, .cap = 3}, "z"));
  const Graph graph = Demanded(*std::move(b).Finish(), DemandMode::kPerOutput);
  EXPECT_EQ(RowsOf(graph, "y"), Dim::T());
  EXPECT_EQ(RowsOf(graph, "y/rows"), Dim::R());
  EXPECT_EQ(RowsOf(graph, "z"), Dim::R());
  EXPECT_EQ(graph.outputs[0].demand, RowDemand::kAll);
  EXPECT_EQ(graph.outputs[1].demand, RowDemand::kWanted);
}

// gather_rows reads a table of rank 2 as a weight and returns f32.
TEST(RowDemand, GatheredHalfPrecisionStaysHalfPrecision) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF16, {Dim::T(), 4}});
  b.WantedRows(b.Input("rows", {DType::kI32, {Dim::R()}}));
  b.Output("y", b.Add(ops::Copy{x}, "y"));
  const Graph graph = Demanded(*std::move(b).Finish(), DemandMode::kPerOutput);
  EXPECT_EQ(graph.type(graph.Find("y")), TensorType(DType::kF16, {Dim::R(), 4}));
}

TEST(RowDemand, ResultsOfOneOpMayBeWantedDifferently) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  b.WantedRows(b.Input("rows", {DType::kI32, {Dim::R()}}));
  const auto top = b.Add(ops::TopK{.x = x, .k = 2}, "top");
  b.Output("values", top.values, RowDemand::kAll);
  b.Output("indices", top.indices);
  const Graph graph = Demanded(*std::move(b).Finish(), DemandMode::kPerOutput);
  EXPECT_EQ(graph.type(graph.outputs[0].value), TensorType(DType::kF32, {Dim::T(), 2}));
  EXPECT_EQ(graph.type(graph.outputs[1].value), TensorType(DType::kI32, {Dim::R(), 2}));
}

TEST(RowDemand, WantedRowsNeedAnInputThatNamesThem) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  b.Output("y", b.Add(ops::Softcap{.x = x, .cap = 2}, "y"));
  const auto graph = ApplyRowDemand(*std::move(b).Finish(), DemandMode::kPerOutput);
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().id, "passes.no_rows_input");
}

}  // namespace
}  // namespace rullama
