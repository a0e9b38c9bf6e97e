#include "core/passes/observe_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/must_test_util.h"
#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

using ::testing::Contains;

TEST(ObserveProducts, FindsTheActivationOfEachMatrix) {
  const ObservedProducts observed = Must(ObserveProducts(MiniModel::Build()));
  EXPECT_TRUE(Verify(observed.graph));
  // Gate and up have one activation, the norm before them.
  const auto gate = std::ranges::find(observed.inputs, "blk.1.gate.weight", &ProductInput::weight);
  const auto up = std::ranges::find(observed.inputs, "blk.1.up.weight", &ProductInput::weight);
  ASSERT_NE(gate, observed.inputs.end());
  ASSERT_NE(up, observed.inputs.end());
  EXPECT_EQ(gate->x, up->x);
  EXPECT_EQ(gate->columns, MiniModel::kWidth);
  // A matrix within a composite, and the last one of a layer.
  for (const char* weight : {"blk.1.ple_proj.weight", "blk.2.down.weight", "blk.0.q.weight"}) {
    EXPECT_THAT(observed.inputs, Contains(::testing::Field(&ProductInput::weight, weight)));
  }
  for (const ProductInput& input : observed.inputs) {
    const ValueId x = observed.graph.Find(input.x);
    ASSERT_NE(x, kNoValue) << input.x;
    EXPECT_EQ(observed.graph.type(x).last().constant, input.columns) << input.weight;
    EXPECT_TRUE(std::ranges::any_of(observed.graph.outputs, [&](const Output& output) {
      return output.name == input.x && output.value == x;
    })) << input.x;
  }
  EXPECT_EQ(observed.graph.Find("token"), kNoValue) << "the sampler is not needed";
}

TEST(ObserveProducts, FindsTheExpertsOfEachRow) {
  GraphBuilder b("experts");
  const ValueId x = b.Add(
      ops::Affine{.x = b.Input("hidden", {DType::kF32, {Dim::T(), 4}}), .scale = 2, .bias = 0},
      "x");
  const auto chosen =
      b.Add(ops::TopK{.x = b.Input("scores", {DType::kF32, {Dim::T(), 3}}), .k = 2}, "chosen");
  const ValueId gate_up = b.Constant("gate_up", {DType::kF32, {3, 10, 4}});
  const ValueId down = b.Constant("down", {DType::kF32, {3, 4, 5}});
  b.Output("y",
           b.Add(ops::MoeFfn{.x = x,
                             .weights = chosen.values,
                             .experts = chosen.indices,
                             .gate_weight = gate_up,
                             .down_weight = down},
                 "y"),
           RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = 2;
  const ObservedProducts observed = Must(ObserveProducts(graph));
  const Status verified = Verify(observed.graph);
  EXPECT_TRUE(verified) << verified.error().ToString();
  ASSERT_EQ(observed.inputs.size(), 2U);
  const ProductInput& first = observed.inputs[0];
  EXPECT_EQ(first, (ProductInput{.weight = "gate_up",
                                 .x = "x",
                                 .columns = 4,
                                 .experts = first.experts,
                                 .expert_count = 3,
                                 .chosen = 2}));
  const ProductInput& second = observed.inputs[1];
  EXPECT_EQ(second, (ProductInput{.weight = "down",
                                  .x = second.x,
                                  .columns = 5,
                                  .experts = first.experts,
                                  .expert_count = 3,
                                  .chosen = 2,
                                  .x_of_expert = true}));
  EXPECT_EQ(observed.graph.type(observed.graph.Find(first.experts)).dtype, DType::kI32);
  EXPECT_EQ(observed.graph.outputs.size(), 3U);
}

}  // namespace
}  // namespace rullama
