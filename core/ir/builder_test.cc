#include "core/ir/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/ir/op_cases_test_util.h"
#include "core/ir/verify.h"

namespace rullama {
namespace {

using test::F;
using test::I;
using test::kT;
using ::testing::HasSubstr;

TEST(BuilderTest, NamesResultsAndLinksProducers) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", F({kT, 8}));
  const ValueId w = b.Constant("blk.0.w", {DType::kQ8_0, {64, 32}}, 128);
  const ValueId y = b.Add(ops::Affine{.x = x, .scale = 2, .bias = 0}, "doubled");
  const ValueId z = b.Add(ops::Softcap{.x = y, .cap = 30});
  const auto top = b.Add(ops::TopK{.x = z, .k = 2}, "best");
  b.Output("top", top.values, RowDemand::kAll);
  auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  EXPECT_TRUE(Verify(*graph));
  EXPECT_EQ(graph->value(w).name, "blk.0.w@128");
  EXPECT_EQ(graph->value(w).source, "blk.0.w");
  EXPECT_EQ(graph->value(w).first_row, 128);
  EXPECT_EQ(graph->Find("doubled"), y);
  EXPECT_EQ(graph->value(z).name, "softcap.3");
  EXPECT_EQ(graph->value(z).producer, 1u);
  EXPECT_EQ(graph->value(top.indices).name, "best.indices");
  EXPECT_EQ(graph->type(top.indices), I({kT, 2}));
  EXPECT_EQ(graph->Find("nothing"), kNoValue);
}

TEST(BuilderTest, OpsOfAPartAreNamedAfterIt) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", F({kT, 8}));
  for (const char* part : {"first.", "second."}) {
    b.NameOps(part);
    b.Add(ops::Softcap{.x = x, .cap = 30}, "capped");
    b.State(std::string("of_") + part, F({1, 2, 8}));
  }
  b.NameOps("");
  b.Add(ops::Softcap{.x = x, .cap = 30}, "capped");
  const Graph graph = *std::move(b).Finish();
  for (const char* name : {"first.capped", "second.capped", "capped", "of_first."}) {
    EXPECT_NE(graph.Find(name), kNoValue) << name;
  }
}

TEST(BuilderTest, VersionsOfAStateShareTheFirst) {
  GraphBuilder b("g");
  const ValueId state = b.State("history", {DType::kI32, {2, 8}});
  const ValueId tokens = b.Input("tokens", I({kT}));
  const ValueId pos = b.Input("pos", I({kT}));
  const ValueId slot = b.Input("slot", I({kT}));
  const ValueId next =
      b.Add(ops::StateAppend{.state = state, .rows = tokens, .pos = pos, .slot = slot});
  const ValueId last =
      b.Add(ops::StateAppend{.state = next, .rows = tokens, .pos = pos, .slot = slot});
  auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph);
  EXPECT_TRUE(Verify(*graph));
  EXPECT_EQ(graph->value(next).lifetime, Lifetime::kState);
  EXPECT_EQ(graph->value(last).state, state);
}

TEST(BuilderTest, TheFirstErrorIsKeptAndStopsTheRest) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", F({kT, 8}));
  EXPECT_TRUE(b.ok());
  const ValueId bad = b.Add(ops::Softcap{.x = x, .cap = -1}, "blk.3.cap");
  EXPECT_FALSE(b.ok());
  EXPECT_EQ(bad, kNoValue);
  EXPECT_EQ(b.Add(ops::Sum(bad, x)), kNoValue);
  EXPECT_EQ(b.graph().ops.size(), 0u);
  const auto graph = std::move(b).Finish();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, "blk.3.cap: softcap: cap is -1, expected a finite number > 0");
}

TEST(BuilderTest, OperandsHaveToExist) {
  GraphBuilder b("g");
  b.Add(ops::Copy{7});
  const auto graph = std::move(b).Finish();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().id, "ir.structure");
  EXPECT_THAT(graph.error().message, HasSubstr("value 7, the graph has 0"));
}

TEST(BuilderTest, ContinuesAGraph) {
  GraphBuilder first("g");
  const ValueId x = first.Input("x", F({kT, 8}));
  first.Add(ops::Copy{x}, "y");
  GraphBuilder second(*std::move(first).Finish());
  const ValueId y = second.graph().Find("y");
  second.Output("sum", second.Add(ops::Sum(x, y)), RowDemand::kAll);
  const auto graph = std::move(second).Finish();
  ASSERT_TRUE(graph);
  EXPECT_TRUE(Verify(*graph));
  EXPECT_EQ(graph->ops.size(), 2u);
}

TEST(BuilderTest, TooManyReshapeDimsAreAnError) {
  GraphBuilder b("g");
  b.Add(ops::ReshapeTo(b.Input("x", F({kT, 16})), {2, 2, 2, 2}));
  const auto graph = std::move(b).Finish();
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("rank 5 is outside 1 to 4"));
}

// A graph built from op structs passes inference and the verifier. (op_structs_test.cc has the
// operands and attributes of every struct.)
TEST(BuilderTest, AddsOpsFromTheirStructs) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", F({kT, 256}));
  const ValueId rows = b.Input("pos", I({kT}));
  const ValueId slot = b.Input("slot", I({kT}));
  const ValueId past = b.Input("past", I({2}));
  const ValueId seed = b.Input("seed", I({2}));
  const ValueId u = b.Input("u", F({kT}));
  const ValueId vector = b.Constant("v", F({256}));
  const ValueId w = b.Constant("w", {DType::kQ8_0, {256, 256}});
  const ValueId history = b.State("h", I({2, 16}));
  const ValueId state = b.State("k", F({2, 16, 1, 64}));
  const ValueId ids = b.Constant("ids", I({3}));
  const ValueId bias = b.Constant("bias", F({3}));
  const ops::AttentionRows all{rows, slot, rows, slot, past};
  const ValueId heads = b.Add(ops::ReshapeTo(x, {4, 64}));
  const ValueId key = b.Add(ops::Slice{.x = heads, .axis = 1, .start = 0, .size = 1});
  b.Add(ops::Concat{.a = heads, .b = key, .axis = 1});
  b.Add(ops::Cast{.x = x, .dtype = DType::kBF16});
  b.Add(ops::Copy{x});
  b.Add(ops::GatherRows{.table = w, .ids = rows, .column = 32, .columns = 64});
  b.Add(ops::GatherLast{.x = x, .index = rows});
  b.Add(ops::Unary{.x = x, .fn = RL_UNARY_EXP});
  b.Add(ops::Product(x, x));
  b.Add(ops::Scale{.x = x, .weight = vector});
  b.Add(ops::Affine{.x = x, .scale = 1, .bias = 2});
  b.Add(ops::Select{.condition = x, .a = x, .otherwise = -1});
  b.Add(ops::Where{.condition = x, .a = x, .b = x});
  b.Add(ops::Entropy{x});
  b.Add(ops::EntropyAccept{.entropy = u, .bound = 0.1F});
  const ValueId experts = b.Constant("experts", {DType::kQ8_0, {4, 512, 256}});
  const ValueId down = b.Constant("down", {DType::kQ8_0, {4, 256, 256}});
  const auto chosen = b.Add(ops::TopK{.x = x, .k = 2});
  b.Add(ops::GroupedMatMul{.x = x, .weight = experts, .experts = chosen.indices});
  b.Add(ops::MoeFfn{.x = x,
                    .weights = chosen.values,
                    .experts = chosen.indices,
                    .gate_weight = experts,
                    .down_weight = down});
  b.Add(ops::SoftEmbed{.logits = x, .inverse_temperature = b.Constant("one", F({1})), .table = w});
  b.Add(ops::Reduce{.x = x, .fn = RL_REDUCE_SUM});
  b.Add(ops::ArgMax{x});
  b.Add(ops::TopK{.x = x, .k = 5});
  b.Add(ops::CumSum{x});
  b.Add(ops::Softmax{x});
  b.Add(ops::Linear(x, w));
  b.Add(ops::RmsNorm{.x = x, .eps = 1e-6F});
  b.Add(ops::Softcap{.x = x, .cap = 30});
  b.Add(ops::GeGlu{.gate = x, .up = x});
  b.Add(ops::GeGluLinear{.x = x, .gate_weight = w, .up_weight = w});
  b.Add(ops::ResidualNorm{.residual = x, .x = x, .weight = vector, .eps = 1e-6F});
  b.Add(ops::Rope{.x = heads, .pos = rows, .theta = 10000, .n_rot = 64});
  b.Add(ops::WithRows(ops::Attention{.q = heads,
                                     .k_new = key,
                                     .v_new = key,
                                     .k_state = state,
                                     .v_state = state,
                                     .mask = RL_MASK_CAUSAL,
                                     .window = 8,
                                     .scale = 1},
                      all));
  const ValueId scores =
      b.Add(OpKind::kAttentionScores, {heads, key, state, rows, slot, rows, slot, past, kNoValue},
            OpAttrs(rl_attention_scores_attrs{0, RL_MASK_CAUSAL, 8, 1}))[0];
  b.Add(OpKind::kAttentionMix, {scores, key, state, slot}, OpAttrs(OpKind::kAttentionMix));
  b.Add(ops::StateAppend{.state = state, .rows = key, .pos = rows, .slot = slot});
  b.Add(ops::PleInject{
      .x = x, .ple = x, .gate_weight = w, .proj_weight = w, .norm_weight = vector, .eps = 1e-6F});
  b.Add(ops::WithRows(ops::Penalties{.logits = x,
                                     .history = history,
                                     .tokens = rows,
                                     .last_n = 16,
                                     .repeat = 1.1F,
                                     .frequency = 0,
                                     .presence = 0},
                      all));
  b.Add(ops::BiasAdd{.logits = x, .ids = ids, .bias = bias});
  b.Add(ops::TopPMask{.x = x, .p = 0.9F});
  b.Add(ops::MinPMask{.x = x, .p = 0.1F});
  b.Add(ops::TypicalPMask{.x = x, .p = 0.5F});
  b.Add(ops::RandomUniform{.seed = seed, .pos = rows, .slot = slot, .stream = 1});
  b.Add(ops::Categorical{.x = x, .u = u});
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  const Status verified = Verify(*graph);
  EXPECT_TRUE(verified) << verified.error().ToString();
}

}  // namespace
}  // namespace rullama
