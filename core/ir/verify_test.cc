#include "core/ir/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/ir/builder.h"
#include "core/ir/op_cases_test_util.h"

namespace rullama {
namespace {

using test::F;
using test::I;
using test::kT;
using ::testing::HasSubstr;

// Op 0 embeds, op 1 attends over the state, op 2 caps the result, op 3 appends.
Graph GoodGraph() {
  GraphBuilder b("good");
  const ValueId tokens = b.Input("tokens", I({kT}));
  const ValueId pos = b.Input("pos", I({kT}));
  const ValueId slot = b.Input("slot", I({kT}));
  const ValueId past = b.Input("past", I({2}));
  const ValueId rows = b.Input("rows", I({Dim::R()}));
  const ValueId table = b.Constant("table", F({10, 1, 8}));
  const ValueId state = b.State("k", F({2, 16, 1, 8}));
  const ValueId x = b.Add(ops::GatherRows{.table = table, .ids = tokens}, "x");
  const ValueId y = b.Add(ops::WithRows(ops::Attention{.q = x,
                                                       .k_new = x,
                                                       .v_new = x,
                                                       .k_state = state,
                                                       .v_state = state,
                                                       .mask = RL_MASK_CAUSAL,
                                                       .window = 0,
                                                       .scale = 1},
                                        ops::AttentionRows{pos, slot, pos, slot, past}),
                          "y");
  const ValueId z = b.Add(ops::Softcap{.x = y, .cap = 30}, "z");
  b.Add(ops::StateAppend{.state = state, .rows = x, .pos = pos, .slot = slot}, "k.next");
  b.WantedRows(rows);
  b.Output("z", z);
  Graph graph = *std::move(b).Finish();
  graph.max_t = 8;
  graph.max_r = 4;
  return graph;
}

Value& At(Graph& graph, std::string_view name) { return graph.values[graph.Find(name)]; }

struct Breach {
  std::string id;
  std::string fragment;
  std::function<void(Graph&)> change;
};

void ExpectRefused(const std::vector<Breach>& breaches) {
  for (const Breach& breach : breaches) {
    SCOPED_TRACE(breach.fragment);
    Graph graph = GoodGraph();
    breach.change(graph);
    const Status status = Verify(graph);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().id, breach.id) << status.error().message;
    EXPECT_THAT(status.error().message, HasSubstr(breach.fragment));
  }
}

TEST(VerifyTest, AcceptsAGoodGraphAndEveryOp) {
  const Status status = Verify(GoodGraph());
  EXPECT_TRUE(status) << status.error().ToString();
  for (const test::OpCase& row : test::OpCases()) {
    const Status op = Verify(test::GraphOf(row.use));
    EXPECT_TRUE(op) << op.error().ToString();
  }
}

TEST(VerifyTest, Bounds) {
  ExpectRefused({
      {"ir.structure", "max T = 0", [](Graph& g) { g.max_t = 0; }},
      {"ir.structure", "max T = 4294967296", [](Graph& g) { g.max_t = int64_t{1} << 32; }},
      {"ir.structure", "max R = -1", [](Graph& g) { g.max_r = -1; }},
      {"ir.structure", "max R = 9", [](Graph& g) { g.max_r = 9; }},
  });
}

TEST(VerifyTest, Names) {
  ExpectRefused({
      {"ir.structure", "a value has no name", [](Graph& g) { At(g, "x").name = ""; }},
      {"ir.structure", "two values are named 'y'", [](Graph& g) { At(g, "x").name = "y"; }},
  });
}

TEST(VerifyTest, ProducersAndIds) {
  ExpectRefused({
      {"ir.structure", "'x' is produced by op 99", [](Graph& g) { At(g, "x").producer = 99; }},
      {"ir.structure", "no op produces the transient 'x'",
       [](Graph& g) { At(g, "x").producer = kNoOp; }},
      {"ir.structure", "input 'pos' is the result of an op",
       [](Graph& g) { At(g, "pos").producer = 0; }},
      {"ir.structure", "constant 'table' is the result of an op",
       [](Graph& g) { At(g, "table").producer = 0; }},
      {"ir.structure", "result 0 does not name this op",
       [](Graph& g) { g.ops[2].results[0] = g.Find("y"); }},
      {"ir.structure", "result 0 does not name this op",
       [](Graph& g) { g.ops[2].results[0] = 1000; }},
      {"ir.structure", "value 'spare' is not a result of its producer",
       [](Graph& g) {
         g.values.push_back(At(g, "z"));
         g.values.back().name = "spare";
       }},
      {"ir.structure", "operand refers to value 1000", [](Graph& g) { g.ops[2].inputs[0] = 1000; }},
      {"ir.structure", "operand 'z' is computed by the later op 2",
       [](Graph& g) { g.ops[1].inputs[0] = g.Find("z"); }},
      {"ir.structure", "operand 'z' is computed by the later op 2",
       [](Graph& g) { g.ops[2].inputs[0] = g.Find("z"); }},
      {"ir.structure", "unknown kind 9999",
       [](Graph& g) { g.ops[2].kind = static_cast<OpKind>(9999); }},
      {"ir.structure", "found 2 results, expected 1",
       [](Graph& g) { g.ops[2].results.push_back(0); }},
      {"ir.structure", "device -1", [](Graph& g) { g.ops[2].device = -1; }},
      {"ir.structure", "unknown lifetime",
       [](Graph& g) { At(g, "x").lifetime = static_cast<Lifetime>(9); }},
      {"ir.structure", "result 'k.next' has the wrong lifetime",
       [](Graph& g) {
         At(g, "k.next").lifetime = Lifetime::kTransient;
         At(g, "k.next").state = kNoValue;
       }},
  });
}

TEST(VerifyTest, TwoResultsAreTwoValues) {
  GraphBuilder b("g");
  b.Add(ops::TopK{.x = b.Input("x", F({kT, 8})), .k = 2}, "top");
  Graph graph = *std::move(b).Finish();
  graph.ops[0].results[1] = graph.ops[0].results[0];
  const Status status = Verify(graph);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("two results are the same value"));
}

TEST(VerifyTest, Constants) {
  ExpectRefused({
      {"ir.structure", "constant 'table' names no tensor",
       [](Graph& g) { At(g, "table").source = ""; }},
      {"ir.structure", "constant 'table' begins at row -1",
       [](Graph& g) { At(g, "table").first_row = -1; }},
      {"ir.type", "expected constant dimensions",
       [](Graph& g) { At(g, "table").type.dim(0) = kT; }},
  });
}

TEST(VerifyTest, Types) {
  ExpectRefused({
      {"ir.type", "value 'x': dimension 2", [](Graph& g) { At(g, "x").type.dim(2) = -8; }},
      {"ir.type", "op 0 (gather_rows -> 'x'): result 'x' is f32[T,1,4], expected f32[T,1,8]",
       [](Graph& g) { At(g, "x").type.dim(2) = 4; }},
      {"ir.type", "op 2 (softcap -> 'z'): softcap: cap is -1",
       [](Graph& g) {
         g.ops[2].attrs = OpAttrs(rl_softcap_attrs{0, -1.0F});
       }},
      {"ir.type", "operand x is missing", [](Graph& g) { g.ops[2].inputs[0] = kNoValue; }},
      {"ir.type", "found 2 operands, expected 1", [](Graph& g) { g.ops[2].inputs.push_back(0); }},
      {"ir.type", "attributes of 4 bytes, expected 8",
       [](Graph& g) { g.ops[2].attrs = OpAttrs(OpKind::kCopy); }},
      {"ir.structure", "attributes say 99 bytes, found 8",
       [](Graph& g) { static_cast<rl_softcap_attrs*>(g.ops[2].attrs.data())->struct_size = 99; }},
  });
}

TEST(VerifyTest, StateVersions) {
  ExpectRefused({
      {"ir.type", "state 'k' is f32[T,16,1,8]", [](Graph& g) { At(g, "k").type.dim(0) = kT; }},
      {"ir.type", "expected constant dimensions and a plain element type",
       [](Graph& g) {
         At(g, "k").type = {DType::kQ5_0, {2, 16, 1, 32}};
       }},
      {"ir.state", "value 'x' belongs to a state but is not one",
       [](Graph& g) { At(g, "x").state = g.Find("k"); }},
      {"ir.state", "state 'k' does not name its first version",
       [](Graph& g) { At(g, "k").state = kNoValue; }},
      {"ir.state", "state 'k' does not name its first version",
       [](Graph& g) { At(g, "k").state = g.Find("x"); }},
      {"ir.state", "'k.next' is named as the first version of state 'k'",
       [](Graph& g) { At(g, "k").state = g.Find("k.next"); }},
      {"ir.state", "version 'k.next' of state 'k' comes from no op",
       [](Graph& g) { At(g, "k.next").producer = kNoOp; }},
      {"ir.state", "writes a value that is not a state",
       [](Graph& g) { g.ops[3].inputs[0] = g.Find("x"); }},
      {"ir.state", "'k.next' is a version of another state than operand 'k'",
       [](Graph& g) {
         g.values.push_back(At(g, "k"));
         g.values.back().name = "other";
         g.values.back().state = static_cast<ValueId>(g.values.size() - 1);
         At(g, "k.next").state = g.values.back().state;
       }},
  });
}

TEST(VerifyTest, AnEffectWritesSeveralStatesOnceEach) {
  GraphBuilder b("g");
  const auto state = [&](const char* name) { return b.State(name, F({3, 4})); };
  const auto number = [&](const char* name) { return b.Input(name, F({1})); };
  b.Add(ops::AdamW{.p = state("p"),
                   .m = state("m"),
                   .v = state("v"),
                   .g = state("g"),
                   .lr = number("lr"),
                   .m_correction = number("mc"),
                   .v_correction = number("vc"),
                   .g_factor = number("factor"),
                   .m_rate = 0.1F,
                   .v_rate = 0.001F},
        "next");
  const Graph good = *std::move(b).Finish();
  const Status status = Verify(good);
  ASSERT_TRUE(status) << status.error().ToString();
  const auto expect_refused = [&](std::string_view fragment, auto change) {
    Graph graph = good;
    change(graph);
    const Status refused = Verify(graph);
    ASSERT_FALSE(refused) << fragment;
    EXPECT_EQ(refused.error().id, "ir.state");
    EXPECT_THAT(refused.error().message, HasSubstr(fragment));
  };
  expect_refused("writes state 'm', which is another operand as well", [](Graph& g) {
    g.ops[0].inputs[2] = g.Find("m");
    At(g, "next.v_next").state = g.Find("m");
  });
  expect_refused("result 'next.m_next' is a version of another state than operand 'm'",
                 [](Graph& g) { At(g, "next.m_next").state = g.Find("v"); });
}

TEST(VerifyTest, AppendsComeLastAndOnce) {
  ExpectRefused({
      {"ir.state", "op 4 (attention -> 'late'): reads state 'k' after op 3 (state_append",
       [](Graph& g) {
         Op reader = g.ops[1];
         g.values.push_back(At(g, "y"));
         g.values.back().name = "late";
         g.values.back().producer = 4;
         reader.results = {static_cast<ValueId>(g.values.size() - 1)};
         g.ops.push_back(reader);
       }},
      {"ir.state", "op 4 (state_append -> 'second'): writes state 'k' after op 3",
       [](Graph& g) {
         Op append = g.ops[3];
         g.values.push_back(At(g, "k.next"));
         g.values.back().name = "second";
         g.values.back().producer = 4;
         append.results = {static_cast<ValueId>(g.values.size() - 1)};
         g.ops.push_back(append);
       }},
  });
}

TEST(VerifyTest, Outputs) {
  ExpectRefused({
      {"ir.output", "output 'z' refers to value 1000", [](Graph& g) { g.outputs[0].value = 1000; }},
      {"ir.output", "output name '' is empty or used twice",
       [](Graph& g) { g.outputs[0].name = ""; }},
      {"ir.output", "output name 'z' is empty or used twice",
       [](Graph& g) { g.outputs.push_back(g.outputs[0]); }},
      {"ir.output", "output 'z' is 'pos', which no op computes",
       [](Graph& g) { g.outputs[0].value = g.Find("pos"); }},
      {"ir.output", "output 'z' wants chosen rows, but no input names them",
       [](Graph& g) { g.rows_input = kNoValue; }},
      {"ir.output", "unknown row demand",
       [](Graph& g) { g.outputs[0].demand = static_cast<RowDemand>(7); }},
      {"ir.output", "the wanted rows are not an input of type i32[R]",
       [](Graph& g) { g.rows_input = g.Find("pos"); }},
      {"ir.output", "the wanted rows are not an input of type i32[R]",
       [](Graph& g) { g.rows_input = 1000; }},
  });
}

}  // namespace
}  // namespace rullama
