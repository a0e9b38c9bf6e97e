// Image towers of Gemma 3 in made-up files of both dialects, and in files that are spoilt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf_writer.h"
#include "models/gemma3/towers/towers.h"
#include "models/gemma3/towers/vision_tower.h"

namespace rullama::gemma3 {
namespace {

using testing::HasSubstr;

constexpr VisionConfig kTiny = {.side = 56,
                                .patch = 7,
                                .pool = 4,
                                .width = 12,
                                .layers = 2,
                                .heads = 3,
                                .ffn_width = 20,
                                .text_width = 16};

// A file of a tower of zeros.
class Gemma3TowerTest : public testing::Test {
 protected:
  Gemma3TowerTest() : tensors_(ExpectedTensors(kTiny)) {}

  void SetNumbers(const std::string& prefix) {
    Set(prefix + "image_size", static_cast<uint32_t>(kTiny.side));
    Set(prefix + "patch_size", static_cast<uint32_t>(kTiny.patch));
    Set(prefix + "embedding_length", static_cast<uint32_t>(kTiny.width));
    Set(prefix + "feed_forward_length", static_cast<uint32_t>(kTiny.ffn_width));
    Set(prefix + "block_count", static_cast<uint32_t>(kTiny.layers));
    Set(prefix + "attention.head_count", static_cast<uint32_t>(kTiny.heads));
  }
  void SetLlamaCpp(std::string_view projector = "gemma3") {
    Set("general.architecture", "clip");
    Set("clip.has_vision_encoder", true);
    Set("clip.projector_type", projector);
    SetNumbers("clip.vision.");
  }
  void SetOllama(uint32_t tokens_of_picture) {
    Set("general.architecture", "gemma3");
    SetNumbers("gemma3.vision.");
    Set("gemma3.mm.tokens_per_image", tokens_of_picture);
  }
  template <typename T>
  void Set(std::string_view key, T value) {
    ASSERT_TRUE(writer_.Set(key, value));
  }
  // The tensors by their second names, where they have them.
  void UseOllamasNames() {
    for (TensorSpec& spec : tensors_) {
      if (!spec.alternatives.empty()) spec.name = spec.alternatives.front();
    }
  }
  void Rename(std::string_view from, const std::string& to) {
    for (TensorSpec& spec : tensors_) {
      const size_t at = spec.name.find(from);
      if (at != std::string::npos) spec.name.replace(at, from.size(), to);
    }
  }

  GgufFile Parse() {
    constexpr size_t kAlignment = 32;
    for (const TensorSpec& spec : tensors_) {
      const std::vector<uint64_t> dims(spec.dims.rbegin(), spec.dims.rend());
      EXPECT_TRUE(writer_.AddTensor(spec.name, DType::kF32, dims));
    }
    bytes_ = Must(writer_.EncodeHeader());
    for (const TensorSpec& spec : tensors_) {
      size_t elements = 1;
      for (const int64_t dim : spec.dims) elements *= static_cast<size_t>(dim);
      bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment +
                    elements * sizeof(float));
    }
    bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
    return Must(GgufFile::Parse(bytes_));
  }
  std::string ErrorOf(int64_t text_width = kTiny.text_width) {
    const GgufFile file = Parse();
    const auto tower = ReadVisionTower(file, text_width);
    return tower ? "no error" : tower.error().ToString();
  }

  GgufWriter writer_;
  std::vector<TensorSpec> tensors_;

 private:
  std::vector<std::byte> bytes_;
};

TEST_F(Gemma3TowerTest, AFileOfLlamaCpp) {
  SetLlamaCpp();
  const GgufFile file = Parse();
  const Towers towers = Must(ReadTowers(file));
  ASSERT_NE(towers.picture, nullptr);
  EXPECT_EQ(towers.sound, nullptr);
  EXPECT_EQ(towers.picture->facts().projector, "gemma3");
  EXPECT_EQ(towers.picture->facts().layers, 2);
  EXPECT_EQ(towers.picture->SquareSide(), 28u);
  EXPECT_EQ(towers.picture->Budgets().size(), 1u);
  EXPECT_EQ(towers.picture->Budgets().front(), 4u);
  // The grid does not depend on the picture.
  EXPECT_EQ(Must(towers.picture->Fit(20'000, 10, 4)), (BlockGrid{2, 2}));
  EXPECT_TRUE(towers.picture->BuildGraph(4));
}

TEST_F(Gemma3TowerTest, AFileOfOllama) {
  SetOllama(16);
  UseOllamasNames();
  const GgufFile file = Parse();
  const auto tower = Must(ReadVisionTower(file, kTiny.text_width));
  ASSERT_TRUE(tower);
  EXPECT_EQ(tower->config.pool, 2);
  EXPECT_EQ(tower->config.tokens(), 16);
}

TEST_F(Gemma3TowerTest, ATextModelHasNone) {
  Set("general.architecture", "gemma3");
  tensors_.resize(1);
  EXPECT_FALSE(Must(ReadVisionTower(Parse(), kTiny.text_width)));
}

TEST_F(Gemma3TowerTest, OldFilesExchangeTheNamesOfAFeedForward) {
  SetLlamaCpp();
  Rename("ffn_up", "ffn_other");
  Rename("ffn_down", "ffn_up");
  Rename("ffn_other", "ffn_down");
  const GgufFile file = Parse();
  const auto tower = Must(ReadVisionTower(file, kTiny.text_width));
  EXPECT_EQ(tower->weights.Find("v.blk.1.ffn_up.weight")->tensor, "v.blk.1.ffn_down.weight");
  EXPECT_EQ(tower->weights.Find("v.blk.1.ffn_down.bias")->tensor, "v.blk.1.ffn_up.bias");
}

TEST_F(Gemma3TowerTest, OfAnotherModel) {
  SetLlamaCpp("gemma4v");
  EXPECT_THAT(ErrorOf(), HasSubstr("the vision projector of the file is 'gemma4v', expected "
                                   "'gemma3'; use the mmproj file that belongs to the Gemma 3 "
                                   "model [model.projector]"));
}

TEST_F(Gemma3TowerTest, OfAnotherSize) {
  SetLlamaCpp();
  EXPECT_THAT(ErrorOf(32), HasSubstr("the tower is for a text model of width 16, this one has "
                                     "width 32; use the mmproj file of this size of the model "
                                     "[model.tower]"));
}

TEST_F(Gemma3TowerTest, OfAWidthThatTheFileDenies) {
  SetLlamaCpp();
  Set("clip.vision.projection_dim", uint32_t{24});
  EXPECT_THAT(ErrorOf(), HasSubstr("for a text model of width 24, this one has width 16"));
}

TEST_F(Gemma3TowerTest, AProjectorTheUsualWayRound) {
  SetLlamaCpp();
  tensors_.back().dims = {kTiny.text_width, kTiny.width};
  EXPECT_THAT(ErrorOf(), HasSubstr("[model.tower]"));
}

TEST_F(Gemma3TowerTest, WithoutAProjector) {
  SetLlamaCpp();
  tensors_.pop_back();
  EXPECT_THAT(ErrorOf(), HasSubstr("tensor 'mm.input_projection.weight' is missing"));
}

TEST_F(Gemma3TowerTest, WithoutABias) {
  SetLlamaCpp();
  std::erase_if(tensors_, [](const TensorSpec& t) { return t.name == "v.blk.0.attn_q.bias"; });
  EXPECT_THAT(ErrorOf(), HasSubstr("[model.missing_tensor]"));
}

TEST_F(Gemma3TowerTest, SquaresThatDoNotFillAPicture) {
  SetLlamaCpp();
  Set("clip.vision.projector.scale_factor", uint32_t{3});
  EXPECT_THAT(ErrorOf(), HasSubstr("56 pixels wide, expected a multiple of 21"));
}

TEST_F(Gemma3TowerTest, TokensThatAreNoSquares) {
  SetOllama(5);
  UseOllamasNames();
  EXPECT_THAT(ErrorOf(), HasSubstr("'gemma3.mm.tokens_per_image' is 5, expected the 64 patches"));
}

TEST_F(Gemma3TowerTest, OtherColours) {
  SetLlamaCpp();
  constexpr std::array<float, 3> kMean = {0.5F, 0.25F, 0.5F};
  ASSERT_TRUE(writer_.SetArray("clip.vision.image_mean", std::span<const float>(kMean)));
  EXPECT_THAT(ErrorOf(), HasSubstr("'clip.vision.image_mean' has 0.25, expected 0.5"));
}

}  // namespace
}  // namespace rullama::gemma3
