#include "samplers/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/ir/verify.h"
#include "samplers/sampler_test_fixture.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

struct Built {
  Graph graph;
  Sampler sampler;

  // Without those that gather the wanted rows.
  [[nodiscard]] std::vector<OpKind> Ops() const {
    std::vector<OpKind> kinds;
    for (const Op& op : graph.ops) {
      if (op.kind != OpKind::kGatherRows) kinds.push_back(op.kind);
    }
    return kinds;
  }
  [[nodiscard]] std::vector<std::string> Bound() const {
    std::vector<std::string> names;
    for (const SamplerBinding& binding : sampler.bindings) names.push_back(binding.name);
    return names;
  }
};

Built Build(const SamplerSettings& settings) {
  SamplerFixture bench(kVocabulary);
  auto sampler = AppendSampler(bench.builder, bench.logits, bench.inputs, settings);
  EXPECT_TRUE(sampler.has_value()) << sampler.error().ToString();
  auto graph = std::move(bench.builder).Finish();
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  const Status verified = Verify(*graph);
  EXPECT_TRUE(verified.has_value()) << verified.error().ToString();
  return {*std::move(graph), *std::move(sampler)};
}

TEST(SamplerChainTest, GreedyIsOneOp) {
  const Built built = Build({.greedy = true});
  EXPECT_THAT(built.Ops(), ElementsAre(OpKind::kArgMax));
  EXPECT_TRUE(built.sampler.bindings.empty());
  ASSERT_EQ(built.graph.outputs.size(), 1u);
  EXPECT_EQ(built.graph.outputs[0].name, "token");
  EXPECT_EQ(built.graph.outputs[0].value, built.sampler.token);
  EXPECT_EQ(built.graph.outputs[0].demand, RowDemand::kWanted);
}

TEST(SamplerChainTest, DefaultsTruncateAndDraw) {
  const Built built = Build({});
  EXPECT_THAT(built.Ops(), ElementsAre(OpKind::kTopK, OpKind::kTopPMask, OpKind::kRowUniform,
                                       OpKind::kCategorical, OpKind::kGatherLast));
  EXPECT_THAT(built.Bound(), ElementsAre("sampler.key"));
  EXPECT_EQ(ToString(built.graph.type(built.sampler.token)), "i32[R]");
}

TEST(SamplerChainTest, StepsThatDoNothingAreLeftOut) {
  const Built built = Build({.top_k = 0, .top_p = 1});
  EXPECT_THAT(built.Ops(), ElementsAre(OpKind::kRowUniform, OpKind::kCategorical));
}

TEST(SamplerChainTest, TopPAloneSortsTheVocabulary) {
  const Built built = Build({.top_k = 0, .top_p = 0.5});
  const auto sort = std::ranges::find(built.graph.ops, OpKind::kTopK, &Op::kind);
  ASSERT_NE(sort, built.graph.ops.end());
  EXPECT_EQ(sort->As<rl_topk_attrs>().k, kVocabulary);
}

TEST(SamplerChainTest, FullChainKeepsItsOrder) {
  const Built built = Build({.temperature = 0.5,
                             .top_k = 10,
                             .top_p = 0.9,
                             .min_p = 0.05,
                             .typical_p = 0.8,
                             .repeat_penalty = 1.2,
                             .logit_bias = {{3, 1.5}, {7, -2}},
                             .seed = 0x1122334455667788});
  EXPECT_THAT(built.Ops(), ElementsAre(OpKind::kBiasAdd, OpKind::kPenalties, OpKind::kStateAppend,
                                       OpKind::kTopK, OpKind::kTypicalPMask, OpKind::kTopPMask,
                                       OpKind::kMinPMask, OpKind::kAffine, OpKind::kRowUniform,
                                       OpKind::kCategorical, OpKind::kGatherLast));
  EXPECT_THAT(built.Bound(), ElementsAre("sampler.bias_ids", "sampler.bias", "sampler.key"));
  int32_t ids[2];
  std::memcpy(ids, built.sampler.bindings[0].bytes.data(), sizeof(ids));
  EXPECT_THAT(ids, ElementsAre(3, 7));
  uint32_t key[3];
  std::memcpy(key, built.sampler.bindings[2].bytes.data(), sizeof(key));
  EXPECT_THAT(key, ElementsAre(0x55667788u, 0x11223344u, 0u));
}

TEST(SamplerChainTest, HistoryIsAsLongAsTheLookBack) {
  const auto history = [](int64_t last_n) {
    const Built built = Build({.greedy = true, .repeat_last_n = last_n, .presence_penalty = 1});
    return ToString(built.graph.type(built.graph.Find("sampler.history")));
  };
  EXPECT_EQ(history(64), "i32[2,64]");
  EXPECT_EQ(history(-1), "i32[2,512]");
  EXPECT_EQ(history(100000), "i32[2,512]");
}

TEST(SamplerChainTest, BadSettingsAddNothing) {
  SamplerFixture bench(kVocabulary);
  const auto sampler =
      AppendSampler(bench.builder, bench.logits, bench.inputs, {.temperature = -1});
  ASSERT_FALSE(sampler);
  EXPECT_EQ(sampler.error().id, "sampler.range");
  EXPECT_TRUE(bench.builder.graph().ops.empty());
}

}  // namespace
}  // namespace rullama
