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

TEST(ObserveProducts, RefusesExperts) {
  GraphBuilder b("experts");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId chosen = b.Input("chosen", {DType::kI32, {Dim::T(), 2}});
  const ValueId weight = b.Constant("w", {DType::kF32, {3, 5, 4}});
  b.Output("y", b.Add(ops::GroupedMatMul{.x = x, .weight = weight, .experts = chosen}, "y"),
           RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = 2;
  EXPECT_EQ(ObserveProducts(graph).error().id, "observe.experts");
}

}  // namespace
}  // namespace rullama
