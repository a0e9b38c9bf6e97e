// The small models of every kind, in both number formats.
#include <gtest/gtest.h>

#include <string>

#include "models/gemma4/graph/model.h"

namespace rullama {
namespace {

std::string PathOf(const std::string& name) {
  return RULLAMA_SOURCE_DIR "/../shared/models/" + name + ".gguf";
}

class DenseFileTest : public testing::TestWithParam<const char*> {};

TEST_P(DenseFileTest, BuildsWithoutWarnings) {
  const auto file = GgufFile::Open(PathOf(GetParam()));
  ASSERT_TRUE(file) << file.error().ToString();
  const auto config = Gemma4Config::FromFile(*file);
  ASSERT_TRUE(config) << config.error().ToString();
  const auto weights = Gemma4Weights::FromFile(*config, *file, {.strict = true});
  ASSERT_TRUE(weights) << weights.error().ToString();
  EXPECT_TRUE(weights->warnings().empty());
  auto model = BuildModel(*config, *weights, {.slots = 3, .capacity = 2048, .max_t = 64});
  ASSERT_TRUE(model) << model.error().ToString();
  const auto graph = std::move(model->builder).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
}

INSTANTIATE_TEST_SUITE_P(Files, DenseFileTest,
                         testing::Values("tiny-e2b-f16", "tiny-e2b-Q4_K_M", "tiny-dense-f16",
                                         "tiny-dense-Q4_K_M"));

TEST(DenseFileTest, LastLayerUsesKAsV) {
  const auto file = GgufFile::Open(PathOf("tiny-dense-f16"));
  ASSERT_TRUE(file);
  const auto config = Gemma4Config::FromFile(*file);
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_TRUE(config->layer(5).k_eq_v);
  EXPECT_EQ(config->layer(5).kv_heads, 1);
  EXPECT_EQ(config->layer(4).kv_heads, 2);
  EXPECT_EQ(config->first_shared_layer(), 6);
}

TEST(DiffusionFileTest, HasACanvasAndTwoPasses) {
  const auto file = GgufFile::Open(PathOf("tiny-diffusion-f16"));
  ASSERT_TRUE(file);
  const auto config = Gemma4Config::FromFile(*file);
  ASSERT_TRUE(config) << config.error().ToString();
  const CanvasFacts expected{.length = 64};  // everything else is as published
  EXPECT_EQ(config->canvas, expected);
  const auto weights = Gemma4Weights::FromFile(*config, *file, {.strict = true});
  ASSERT_TRUE(weights) << weights.error().ToString();
  for (const ModelPass pass : {ModelPass::kCausal, ModelPass::kCanvas}) {
    auto model = BuildModel(*config, *weights, {.pass = pass, .capacity = 2048, .max_t = 64});
    ASSERT_TRUE(model) << model.error().ToString();
    const auto graph = std::move(model->builder).Finish();
    ASSERT_TRUE(graph) << graph.error().ToString();
    const bool canvas = pass == ModelPass::kCanvas;
    const auto has = [&graph](std::string_view name) { return graph->Find(name) != kNoValue; };
    EXPECT_EQ(has("blk.0.layer_output_scale.weight"), canvas);
    EXPECT_EQ(has("blk.0.enc_layer_output_scale.weight"), !canvas);
    EXPECT_EQ(has("blk.0.k.next"), !canvas) << "a canvas joins no cache";
  }
}

}  // namespace
}  // namespace rullama
