// The small models of every kind, in both number formats.
#include <gtest/gtest.h>

#include <string>

#include "models/gemma4/graph/gemma4_loading_test_util.h"
#include "models/gemma4/graph/model.h"

namespace rullama {
namespace {

std::string PathOf(const std::string& name) {
  return RULLAMA_SOURCE_DIR "/../shared/models/" + name + ".gguf";
}

class DenseFileTest : public testing::TestWithParam<const char*> {};

TEST_P(DenseFileTest, BuildsWithoutWarnings) {
  const auto [config, weights] = LoadWholeGemma4(PathOf(GetParam()));
  ModelGraph model = Must(BuildModel(config, weights, {.slots = 3, .capacity = 2048, .max_t = 64}));
  EXPECT_TRUE(std::move(model.builder).Finish());
}

INSTANTIATE_TEST_SUITE_P(Files, DenseFileTest,
                         testing::Values("tiny-e2b-f16", "tiny-e2b-Q4_K_M", "tiny-dense-f16",
                                         "tiny-dense-Q4_K_M"));

TEST(DenseFileTest, LastLayerUsesKAsV) {
  const Gemma4Config config = LoadWholeGemma4(PathOf("tiny-dense-f16")).config;
  EXPECT_TRUE(config.layer(5).k_eq_v);
  EXPECT_EQ(config.layer(5).kv_heads, 1);
  EXPECT_EQ(config.layer(4).kv_heads, 2);
  EXPECT_EQ(config.first_shared_layer(), 6);
}

TEST(DiffusionFileTest, HasACanvasAndTwoPasses) {
  const auto [config, weights] = LoadWholeGemma4(PathOf("tiny-diffusion-f16"));
  const CanvasFacts expected{.length = 64};  // everything else is as published
  EXPECT_EQ(config.canvas, expected);
  for (const ModelPass pass : {ModelPass::kCausal, ModelPass::kCanvas}) {
    ModelGraph model =
        Must(BuildModel(config, weights, {.pass = pass, .capacity = 2048, .max_t = 64}));
    const Graph graph = Must(std::move(model.builder).Finish());
    const bool canvas = pass == ModelPass::kCanvas;
    const auto has = [&graph](std::string_view name) { return graph.Find(name) != kNoValue; };
    EXPECT_EQ(has("blk.0.layer_output_scale.weight"), canvas);
    EXPECT_EQ(has("blk.0.enc_layer_output_scale.weight"), !canvas);
    EXPECT_EQ(has("blk.0.k.next"), !canvas) << "a canvas joins no cache";
  }
}

}  // namespace
}  // namespace rullama
