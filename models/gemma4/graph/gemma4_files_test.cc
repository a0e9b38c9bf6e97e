// Real files: the model that comes with the source.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/gemma4/graph/gemma4_loading_test_util.h"
#include "models/gemma4/graph/model.h"

namespace rullama {
namespace {

TEST(Gemma4FilesTest, TinyE2BBuilds) {
  const auto [config, weights] =
      LoadWholeGemma4(RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf");
  EXPECT_EQ(config.layer_count(), 8);
  EXPECT_EQ(config.width, 256);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.ple_dim, 256);
  EXPECT_EQ(config.first_shared_layer(), 4);
  EXPECT_EQ(config.layer(4).cache_layer, 2);
  EXPECT_EQ(config.layer(7).cache_layer, 3);
  EXPECT_EQ(config.layer(3).head_dim, 128);
  EXPECT_EQ(config.layer(4).ffn_width, 1024);
  EXPECT_EQ(config.sliding_window, 64);
  EXPECT_EQ(CountRotatingPairs(config.rope_factors), 16);

  ModelGraph model = Must(BuildModel(config, weights, {.slots = 1, .capacity = 2048, .max_t = 64}));
  EXPECT_TRUE(model.constants.empty());
  const Graph graph = Must(std::move(model.builder).Finish());
  EXPECT_EQ(ToString(graph.type(graph.Find("blk.2.k"))), "f16[1,64,1,64]");
  EXPECT_EQ(ToString(graph.type(graph.Find("blk.3.v"))), "f16[1,2048,1,128]");
  EXPECT_EQ(ToString(graph.type(graph.Find("logits"))), "f32[T,2048]");
}

}  // namespace
}  // namespace rullama
