#include "core/reference/graph_from_abi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/ir/builder.h"
#include "core/ir/op_cases_test_util.h"
#include "core/ir/text.h"
#include "core/plugin/graph_flatten.h"

namespace rullama::reference {
namespace {

using ::testing::HasSubstr;

TEST(GraphFromAbiTest, EveryOpComesBackAsItWas) {
  for (const test::OpCase& row : test::OpCases()) {
    const Graph graph = test::GraphOf(row.use);
    const FlatGraph flat(graph);
    const auto back = GraphFromAbi(sdk::GraphView(*flat.view()));
    ASSERT_TRUE(back) << back.error().ToString();
    EXPECT_EQ(PrintText(*back), PrintText(graph));
  }
}

// A flattened graph that a test can corrupt, as a host with a bug might.
class Changed {
 public:
  Changed()
      : graph_(test::GraphOf(test::OpCases()[3].use)),  // cast
        flat_(graph_),
        view_(*flat_.view()),
        values_(view_.values, view_.values + view_.value_count),
        op_(view_.ops[0]),
        inputs_(op_.inputs, op_.inputs + op_.input_count) {
    view_.values = values_.data();
    view_.ops = &op_;
    op_.inputs = inputs_.data();
  }

  Result<Graph> Convert() { return GraphFromAbi(sdk::GraphView(view_)); }
  std::string Error() {
    const auto graph = Convert();
    return graph ? "no error" : graph.error().ToString();
  }
  std::vector<rl_value>& values() { return values_; }
  rl_op& op() { return op_; }
  std::vector<uint32_t>& inputs() { return inputs_; }

 private:
  Graph graph_;
  FlatGraph flat_;
  rl_graph view_;
  std::vector<rl_value> values_;
  rl_op op_;
  std::vector<uint32_t> inputs_;
};

std::string ErrorOf(const std::function<void(Changed&)>& change) {
  Changed changed;
  change(changed);
  return changed.Error();
}

TEST(GraphFromAbiTest, BrokenGraphsAreRefused) {
  EXPECT_EQ(ErrorOf([](Changed&) {}), "no error");
  EXPECT_THAT(ErrorOf([](Changed& c) { c.values()[0].dtype = 99; }), HasSubstr("dtype 99"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.values()[0].rank = 5; }), HasSubstr("rank 5"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.values()[0].rank = 0; }), HasSubstr("rank 0"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.values()[0].lifetime = 9; }), HasSubstr("lifetime 9"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.values()[0].dims[1].constant = -4; }),
              HasSubstr("[ir.type]"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.op().kind = 9999; }), HasSubstr("unknown op kind 9999"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.inputs()[0] = 1000; }), HasSubstr("is not a value"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.inputs()[0] = RL_NO_VALUE; }), HasSubstr("is missing"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.op().attrs_size = 4; }),
              HasSubstr("attributes of 4 bytes, expected 8"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.op().attrs = nullptr; }),
              HasSubstr("attributes of 0 bytes"));
  EXPECT_THAT(ErrorOf([](Changed& c) { c.op().result_count = 0; }), HasSubstr("[ir.structure]"));
}

TEST(GraphFromAbiTest, LongerAttributesOfANewerHostAreRead) {
  struct Newer {
    rl_cast_attrs known;
    uint64_t more;
  };
  EXPECT_EQ(ErrorOf([](Changed& c) {
              static const Newer newer{{sizeof(Newer), RL_DTYPE_F16}, 7};
              c.op().attrs = &newer;
              c.op().attrs_size = sizeof(newer);
            }),
            "no error");
}

TEST(GraphFromAbiTest, ShorterAttributesOfAnOlderHostAreRead) {
  GraphBuilder b("g");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 2, 8}});
  const ValueId pos = b.Input("pos", {DType::kI32, {Dim::T()}});
  b.Output("y", b.Add(ops::Rope{.x = x, .pos = pos, .theta = 100, .n_rot = 4, .inverse = 1}, "y"),
           RowDemand::kAll);
  const Graph graph = *std::move(b).Finish();
  const FlatGraph flat(graph);
  rl_op op = flat.view()->ops[0];
  op.attrs_size = kMinAttributeBytes<rl_rope_attrs>;
  rl_graph older = *flat.view();
  older.ops = &op;
  const auto converted = GraphFromAbi(sdk::GraphView(older));
  ASSERT_TRUE(converted) << converted.error().ToString();
  EXPECT_EQ(converted->ops[0].As<rl_rope_attrs>().n_rot, 4);
  EXPECT_EQ(converted->ops[0].As<rl_rope_attrs>().inverse, 0);
}

TEST(GraphFromAbiTest, ObservedValuesBecomeOutputs) {
  Changed changed;
  changed.values()[1].lifetime = RL_LIFETIME_TRANSIENT;
  EXPECT_TRUE(changed.Convert()->outputs.empty());
  changed.values()[1].observed = 1;
  const Graph graph = *changed.Convert();
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.outputs[0].name, graph.value(1).name);
  EXPECT_EQ(graph.outputs[0].demand, RowDemand::kAll);
}

}  // namespace
}  // namespace rullama::reference
