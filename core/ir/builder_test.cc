#include "core/ir/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

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
  const ValueId y = b.Affine(x, 2, 0, "doubled");
  const ValueId z = b.Softcap(y, 30);
  const auto top = b.TopK(z, 2, "best");
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

TEST(BuilderTest, VersionsOfAStateShareTheFirst) {
  GraphBuilder b("g");
  const ValueId state = b.State("history", {DType::kI32, {2, 8}});
  const ValueId tokens = b.Input("tokens", I({kT}));
  const ValueId pos = b.Input("pos", I({kT}));
  const ValueId slot = b.Input("slot", I({kT}));
  const ValueId next = b.StateAppend(state, tokens, pos, slot);
  const ValueId last = b.StateAppend(next, tokens, pos, slot);
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
  const ValueId bad = b.Softcap(x, -1, "blk.3.cap");
  EXPECT_FALSE(b.ok());
  EXPECT_EQ(bad, kNoValue);
  EXPECT_EQ(b.Add(bad, x), kNoValue);
  EXPECT_EQ(b.graph().ops.size(), 0u);
  const auto graph = std::move(b).Finish();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, "blk.3.cap: softcap: cap is -1, expected a finite number > 0");
}

TEST(BuilderTest, OperandsHaveToExist) {
  GraphBuilder b("g");
  b.Copy(7);
  const auto graph = std::move(b).Finish();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().id, "ir.structure");
  EXPECT_THAT(graph.error().message, HasSubstr("value 7, the graph has 0"));
}

TEST(BuilderTest, ContinuesAGraph) {
  GraphBuilder first("g");
  const ValueId x = first.Input("x", F({kT, 8}));
  first.Copy(x, "y");
  GraphBuilder second(*std::move(first).Finish());
  const ValueId y = second.graph().Find("y");
  second.Output("sum", second.Add(x, y), RowDemand::kAll);
  const auto graph = std::move(second).Finish();
  ASSERT_TRUE(graph);
  EXPECT_TRUE(Verify(*graph));
  EXPECT_EQ(graph->ops.size(), 2u);
}

TEST(BuilderTest, TooManyReshapeDimsAreAnError) {
  GraphBuilder b("g");
  b.Reshape(b.Input("x", F({kT, 16})), {2, 2, 2, 2});
  const auto graph = std::move(b).Finish();
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("rank 5 is outside 1 to 4"));
}

// Each method passes its operands and attributes in the order of ops.def: the graph of every op,
// built through its own method, has the operands and types of the table of cases.
TEST(BuilderTest, EveryOpHasAMethod) {
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
  const GraphBuilder::AttentionRows all{rows, slot, rows, slot, past};
  const ValueId heads = b.Reshape(x, {4, 64});
  const ValueId key = b.Slice(heads, 1, 0, 1);
  b.Concat(heads, key, 1);
  b.Cast(x, DType::kBF16);
  b.Copy(x);
  b.GatherRows(w, rows, {}, 32, 64);
  b.GatherLast(x, rows);
  b.Unary(x, RL_UNARY_EXP);
  b.Mul(x, x);
  b.Scale(x, vector);
  b.Affine(x, 1, 2);
  b.Select(x, x, -1);
  b.Where(x, x, x);
  b.Entropy(x);
  b.EntropyAccept(u, 0.1F);
  const ValueId experts = b.Constant("experts", {DType::kQ8_0, {4, 512, 256}});
  const ValueId down = b.Constant("down", {DType::kQ8_0, {4, 256, 256}});
  const auto chosen = b.TopK(x, 2);
  b.GroupedMatMul(x, experts, chosen.indices);
  b.MoeFfn(x, chosen.values, chosen.indices, {experts, kNoValue, down, kNoValue});
  b.SoftEmbed(x, b.Constant("one", F({1})), w);
  b.Reduce(x, RL_REDUCE_SUM);
  b.ArgMax(x);
  b.TopK(x, 5);
  b.CumSum(x);
  b.Softmax(x);
  b.MatMul(x, w);
  b.RmsNorm(x, kNoValue, 1e-6F);
  b.Softcap(x, 30);
  b.GeGlu(x, x);
  b.GeGluLinear(x, w, w);
  b.ResidualNorm(x, x, vector, kNoValue, 1e-6F);
  b.Rope(heads, rows, kNoValue, 10000, 64);
  b.Attention(heads, key, key, state, state, all, RL_MASK_CAUSAL, 8, 1);
  const ValueId scores =
      b.Add(OpKind::kAttentionScores, {heads, key, state, rows, slot, rows, slot, past},
            OpAttrs(rl_attention_scores_attrs{0, RL_MASK_CAUSAL, 8, 1}))[0];
  b.Add(OpKind::kAttentionMix, {scores, key, state, slot}, OpAttrs(OpKind::kAttentionMix));
  b.StateAppend(state, key, rows, slot);
  b.PleInject(x, x, w, w, vector, kNoValue, 1e-6F);
  b.Penalties(x, history, rows, all, 16, 1.1F, 0, 0);
  b.BiasAdd(x, ids, bias);
  b.TopPMask(x, 0.9F);
  b.MinPMask(x, 0.1F);
  b.TypicalPMask(x, 0.5F);
  b.RandomUniform(seed, rows, slot, 1);
  b.Categorical(x, u);
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  const Status verified = Verify(*graph);
  EXPECT_TRUE(verified) << verified.error().ToString();
  std::set<OpKind> kinds;
  for (const Op& op : graph->ops) kinds.insert(op.kind);
  EXPECT_EQ(kinds.size(), AllOps().size());
}

}  // namespace
}  // namespace rullama
