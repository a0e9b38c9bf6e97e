#include "core/passes/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/builder.h"
#include "core/passes/mini_model_for_test.h"
#include "core/passes/row_demand.h"

namespace rullama {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kOutputs = {"scaled", "blk.0.out", "blk.1.out", "blk.2.out"};

TEST(Layers, OpsBelongToTheLayerTheyDependOnOrAreFirstReadBy) {
  const Graph graph = MiniModel::Build();
  const auto layers = LayersOf(graph, kOutputs);
  ASSERT_TRUE(layers.has_value()) << layers.error().ToString();
  const auto layer_of = [&](std::string_view name) { return (*layers)[OpOf(graph, name)]; };
  EXPECT_EQ(layer_of("embd"), 0U);
  EXPECT_EQ(layer_of("scaled"), 0U);
  EXPECT_EQ(layer_of("blk.0.out"), 0U);
  EXPECT_EQ(layer_of("blk.1.normed"), 1U);
  EXPECT_EQ(layer_of("blk.1.k16"), 1U);
  EXPECT_EQ(layer_of("blk.2.attn"), 2U);
  EXPECT_EQ(layer_of("blk.2.out"), 2U);
  EXPECT_EQ(layer_of("logits"), 3U);
  // The per-layer embeddings depend on tokens alone.
  EXPECT_EQ(layer_of("blk.0.ple"), 0U);
  EXPECT_EQ(layer_of("blk.2.ple"), 2U);
  // Every op that uses the history of tokens, which the sampler reads.
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    for (const ValueId input : graph.ops[i].inputs) {
      if (input == kNoValue || graph.value(input).lifetime != Lifetime::kState) continue;
      if (graph.value(input).type.dtype != DType::kI32) continue;
      EXPECT_EQ((*layers)[i], 3U);
    }
  }
}

TEST(Layers, LayersThatShareACacheStayTogether) {
  const Graph graph = MiniModel::Build();
  EXPECT_THAT(PossibleCuts(graph, *LayersOf(graph, kOutputs), 3), ElementsAre(false, true, false));
}

TEST(Layers, AGraphThatEndsEarlyMayLackTheLastOutputs) {
  const auto filling = ApplyRowDemand(MiniModel::Build(), DemandMode::kStateOnly);
  ASSERT_TRUE(filling.has_value());
  ASSERT_EQ(filling->Find("blk.2.out"), kNoValue) << "no state needs the last layer";
  const auto layers = LayersOf(*filling, kOutputs);
  ASSERT_TRUE(layers.has_value()) << layers.error().ToString();
  EXPECT_EQ((*layers)[OpOf(*filling, "blk.1.k16")], 1U);
}

TEST(Layers, AnOutputThatIsMissingInFrontOfAnotherIsAnError) {
  const auto layers =
      LayersOf(MiniModel::Build(), std::vector<std::string>{"scaled", "blk.0.x", "blk.1.out"});
  ASSERT_FALSE(layers.has_value());
  EXPECT_EQ(layers.error().id, "passes.layers");
  EXPECT_THAT(layers.error().message, HasSubstr("not 'blk.0.x'"));
}

}  // namespace
}  // namespace rullama
