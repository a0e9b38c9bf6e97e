#include "models/gemma4/files/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/base/read_file_test_util.h"
#include "core/config/layered_config.h"
#include "core/gguf/dequantize.h"
#include "models/common/files/synth_blocks.h"
#include "models/common/files/synth_file.h"

namespace rullama {
namespace {

Gemma4Config ConfigOf(const std::string& name) {
  const auto config =
      LoadConfigFile(std::string(RULLAMA_SOURCE_DIR) + "/configs/" + name + ".yaml");
  EXPECT_TRUE(config) << config.error().ToString();
  auto model = Gemma4Config::FromArchitecture(config->architecture);
  EXPECT_TRUE(model) << model.error().ToString();
  return *model;
}

// Layers whose ffn_down has the better type in the mix.
std::set<int> SixBitLayers(const std::string& name) {
  const Gemma4Config config = ConfigOf(name);
  const auto specs = ExpectedTensors(config);
  const auto types =
      SyntheticTypes(*FindQuantMix("Q4_K_M"), specs, config.layer_count(), config.experts.count);
  std::set<int> layers;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].name.ends_with("ffn_down.weight")) continue;
    if (types[i] == DType::kQ6_K) layers.insert(std::stoi(specs[i].name.substr(4)));
  }
  return layers;
}

// Published Q4_K_M files of these sizes.
TEST(SynthTypes, DownProjectionsThatGetSixBits) {
  EXPECT_EQ(SixBitLayers("e2b"),
            (std::set<int>{0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34}));
  EXPECT_EQ(SixBitLayers("e4b"), (std::set<int>{0,  1,  2,  3,  4,  7,  10, 13, 16, 19, 22,
                                                25, 28, 31, 34, 36, 37, 38, 39, 40, 41}));
  EXPECT_EQ(SixBitLayers("12b"), (std::set<int>{0,  1,  2,  3,  4,  5,  8,  11, 14, 17, 20, 23,
                                                26, 29, 32, 35, 38, 41, 42, 43, 44, 45, 46, 47}));
}

TEST(SynthTypes, UnknownMixIsAnErrorThatListsThem) {
  const auto mix = FindQuantMix("Q9_Z");
  ASSERT_FALSE(mix);
  EXPECT_EQ(mix.error().id, "quantize.type");
  EXPECT_NE(mix.error().message.find("Q4_K_M"), std::string::npos);
}

class SynthBlocks : public ::testing::TestWithParam<DType> {};

TEST_P(SynthBlocks, HaveTheWantedSpreadAndNoMean) {
  constexpr size_t kElements = 256 * 256;
  constexpr float kDeviation = 0.02f;
  std::vector<std::byte> blocks(RowBytes(GetParam(), kElements));
  FillRandomBlocks(GetParam(), 7, 0, kDeviation, blocks);
  std::vector<float> values(kElements);
  ASSERT_TRUE(Dequantize(GetParam(), blocks, values));
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  // Scales vary by a fifth from block to block and levels are not quite symmetric.
  EXPECT_NEAR(std::sqrt(squares / kElements), kDeviation, 0.1 * kDeviation);
  EXPECT_NEAR(sum / kElements, 0, 0.12 * kDeviation);
}

TEST_P(SynthBlocks, PiecesGiveTheBytesOfTheWhole) {
  const size_t block = InfoOf(GetParam()).block_bytes;
  std::vector<std::byte> whole(block * 64);
  FillRandomBlocks(GetParam(), 9, 0, 1.0f, whole);
  std::vector<std::byte> piece(block * 10);
  FillRandomBlocks(GetParam(), 9, 20, 1.0f, piece);
  EXPECT_TRUE(
      std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<long>(20 * block)));
}

INSTANTIATE_TEST_SUITE_P(Types, SynthBlocks,
                         ::testing::Values(DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ5_0,
                                           DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K,
                                           DType::kQ6_K),
                         [](const auto& row) { return std::string(NameOf(row.param)); });

TEST(Synth, FileIsAModelAndDependsOnTheSeedAlone) {
  const Gemma4Config config = ConfigOf("tiny");
  SyntheticOptions options{.mix = *FindQuantMix("Q4_K_M"), .seed = 3, .name = "test"};
  const std::string path = ::testing::TempDir() + "/synth_test.gguf";
  ASSERT_TRUE(WriteSynthetic(config, options, path));
  const std::string first = ReadWholeFile(path);
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file) << file.error().ToString();
  const auto read = Gemma4Config::FromFile(*file);
  ASSERT_TRUE(read) << read.error().ToString();
  EXPECT_EQ(read->layers, config.layers);
  const auto weights = Gemma4Weights::FromFile(*read, *file, {.strict = true});
  EXPECT_TRUE(weights) << weights.error().ToString();
  options.threads = 3;
  ASSERT_TRUE(WriteSynthetic(config, options, path));
  EXPECT_EQ(ReadWholeFile(path), first);
  options.seed = 4;
  ASSERT_TRUE(WriteSynthetic(config, options, path));
  EXPECT_NE(ReadWholeFile(path), first);
}

TEST(Synth, AnEncoderIsReadAsItWasWritten) {
  Gemma4Config config = ConfigOf("embeddinggemma-2");
  EXPECT_EQ(config.embedding_width, 768);
  EXPECT_EQ(config.radius(), 512);
  config.layers.resize(6);
  config.width = 32;
  config.ple_dim = 32;
  config.vocabulary = 1024;
  const SyntheticOptions options{.mix = *FindQuantMix("Q8_0"), .seed = 3, .name = "test"};
  const std::string path = ::testing::TempDir() + "/synth_encoder_test.gguf";
  const Status written = WriteSynthetic(config, options, path);
  ASSERT_TRUE(written) << written.error().ToString();
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file) << file.error().ToString();
  const auto read = Gemma4Config::FromFile(*file);
  ASSERT_TRUE(read) << read.error().ToString();
  EXPECT_EQ(*read, config);
  const auto weights = Gemma4Weights::FromFile(*read, *file, {.strict = true});
  EXPECT_TRUE(weights) << weights.error().ToString();
}

TEST(Synth, SmallVocabularyIsRefused) {
  Gemma4Config config = ConfigOf("tiny");
  config.vocabulary = 512;
  const SyntheticOptions options{.mix = *FindQuantMix("Q8_0"), .seed = 3, .name = "test"};
  const Status status = WriteSynthetic(config, options, ::testing::TempDir() + "/never.gguf");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "synth.vocabulary");
}

}  // namespace
}  // namespace rullama
