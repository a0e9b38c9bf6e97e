#include "models/gemma4/files/synth_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/base/must_test_util.h"

namespace rullama::gemma4 {
namespace {

using ::testing::ElementsAreArray;

// A model of E2B's width with few tokens and layers.
Gemma4Config SmallE2b() {
  Gemma4Config config;
  config.width = 1536;
  config.vocabulary = 2048;
  config.context_length = 1024;
  config.heads = 8;
  config.sliding_window = 512;
  config.ple_dim = 256;
  config.n_rot_sliding = 256;
  config.n_rot_global = 512;
  config.rope_factors = MakeRopeFactors(256, kGemma4RotaryFraction);
  config.rope_factors_in_file = true;
  config.layers = {{.kv_heads = 1, .head_dim = 256, .ffn_width = 64, .cache_layer = 0},
                   {.kind = LayerKind::kGlobal,
                    .kv_heads = 1,
                    .head_dim = 512,
                    .ffn_width = 64,
                    .cache_layer = 1}};
  return config;
}

TEST(SynthDrafter, WritesWhatIsReadBack) {
  const DrafterConfig config = Must(PublishedDrafter(SmallE2b()));
  const std::string path = ::testing::TempDir() + "/synth_drafter.gguf";
  const SyntheticOptions options{.mix = Must(FindQuantMix("Q8_0")), .seed = 3, .name = "drafter"};
  const Status written = WriteSyntheticDrafter(config, options, path);
  ASSERT_TRUE(written) << written.error().ToString();
  const GgufFile file = Must(GgufFile::Open(path));
  const DrafterFile drafter = Must(ReadDrafter(file, AssistantOrigin::kNamed));
  EXPECT_EQ(drafter.config.network, config.network);
  EXPECT_EQ(drafter.config.target_width, 1536);
  ASSERT_TRUE(drafter.config.ordered);
  EXPECT_EQ(drafter.config.ordered->clusters, config.ordered->clusters);
  EXPECT_EQ(drafter.config.ordered->chosen, 32);
  EXPECT_THAT(drafter.config.ordered->ordering, ElementsAreArray(config.ordered->ordering));
  EXPECT_EQ(drafter.weights.Find("blk.0.ffn_up.weight")->dtype, DType::kQ8_0);
  std::filesystem::remove(path);
}

TEST(SynthDrafter, HasTheParametersOfThePublishedOnes) {
  Gemma4Config e2b = SmallE2b();
  e2b.vocabulary = 262144;
  const DrafterConfig config = Must(PublishedDrafter(e2b));
  EXPECT_EQ(config.ordered->clusters, 2048);
  EXPECT_EQ(config.ordered->cluster_size(), 128);
  int64_t parameters = static_cast<int64_t>(config.ordered->ordering.size());
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (spec.presence == Presence::kOptional) continue;
    int64_t elements = 1;
    for (const int64_t dim : spec.dims) elements *= dim;
    parameters += elements;
  }
  EXPECT_NEAR(static_cast<double>(parameters), 78.0e6, 0.1e6);
}

TEST(SynthDrafter, OtherModelsHaveNone) {
  Gemma4Config other = SmallE2b();
  other.width = 1000;
  EXPECT_EQ(PublishedDrafter(other).error().id, "draft.target");
}

}  // namespace
}  // namespace rullama::gemma4
