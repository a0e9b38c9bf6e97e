// For tests: a tiny base model of Gemma 3 and a tiny EmbeddingGemma, of random weights.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "models/gemma3/files/synth.h"

namespace rullama {

inline Gemma3Config TinyGemma3() {
  Gemma3Config config;
  config.layers = 7;
  config.width = 32;
  config.vocabulary = 1024;
  config.context_length = 64;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 16;
  config.ffn_width = 32;
  config.sliding_window = 8;
  config.rope_scaling_global = 8;
  return config;
}

inline Gemma3Config TinyEmbeddingGemma() {
  Gemma3Config config = TinyGemma3();
  config.rope_scaling_global = 1;
  config.encodes = true;
  config.dense_width = 64;
  return config;
}

// Returns the path of a file that the caller removes.
inline std::string WriteTinyGemma3(const std::string& name,
                                   const Gemma3Config& config = TinyGemma3()) {
  const std::string path = ::testing::TempDir() + "/" + name;
  const Status written = WriteSynthetic(config, {.mix = *FindQuantMix("Q8_0")}, path);
  EXPECT_TRUE(written) << written.error().ToString();
  return path;
}

}  // namespace rullama
