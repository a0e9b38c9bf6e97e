// Towers of the small files, and of copies of them that are spoilt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/must_test_util.h"
#include "models/gemma4/towers/audio_tower.h"
#include "models/gemma4/towers/vision_tower.h"

namespace rullama::gemma4 {
namespace {

using testing::HasSubstr;

constexpr int64_t kTextWidth = 256;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

GgufFile OpenModel(const std::string& name) {
  return Must(GgufFile::Open(RULLAMA_SOURCE_DIR "/../shared/models/" + name + ".gguf"));
}

// The bytes of a small file, to be spoilt.
class TowerFileTest : public testing::Test {
 protected:
  explicit TowerFileTest(const std::string& name = "tiny-e2b-mmproj-f16") {
    const GgufFile file = OpenModel(name);
    bytes_.assign(file.bytes().begin(), file.bytes().end());
  }
  // Replaces a text of the header by one of the same length.
  void Replace(std::string_view from, std::string_view to) {
    ASSERT_EQ(from.size(), to.size());
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string_view::npos) << from;
    std::memcpy(bytes_.data() + at, to.data(), to.size());
  }
  // Replaces the u32 or f32 value of a key, which follows its name and its type.
  template <typename T>
  void SetKey(std::string_view key, T value) {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    const size_t at = text.find(key);
    ASSERT_NE(at, std::string_view::npos) << key;
    std::memcpy(bytes_.data() + at + key.size() + sizeof(uint32_t), &value, sizeof(value));
  }
  void SetValue(std::string_view tensor, size_t index, float value) {
    const GgufFile file = Parse();
    const TensorInfo* info = file.FindTensor(tensor);
    ASSERT_NE(info, nullptr);
    std::memcpy(bytes_.data() + info->offset + index * sizeof(float), &value, sizeof(value));
  }
  [[nodiscard]] GgufFile Parse() const { return Must(GgufFile::Parse(bytes_)); }
  [[nodiscard]] std::string VisionError(int64_t text_width = kTextWidth) const {
    const auto tower = ReadVisionTower(Parse(), text_width);
    return tower ? "no error" : tower.error().ToString();
  }
  [[nodiscard]] std::string AudioError() const {
    const auto tower = ReadAudioTower(Parse(), kTextWidth);
    return tower ? "no error" : tower.error().ToString();
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST(TowerTest, EncoderWithClipping) {
  const GgufFile file = OpenModel("tiny-e2b-mmproj-f16");
  const auto tower = Must(ReadVisionTower(file, kTextWidth));
  ASSERT_TRUE(tower.has_value());
  const VisionConfig& c = tower->config;
  EXPECT_FALSE(c.unified);
  EXPECT_EQ(c.patch, 16);
  EXPECT_EQ(c.pool, 3);
  EXPECT_EQ(c.width, 96);
  EXPECT_EQ(c.positions, 1024);
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.head_dim(), 24);
  EXPECT_EQ(c.ffn_width, 224);
  EXPECT_FALSE(c.standardize);
  EXPECT_EQ(tower->bounds.size(), 21u);
  const ClipBounds& q = tower->bounds.at("v.blk.1.attn_q");
  EXPECT_LT(q.input.low, q.input.high);
  EXPECT_FALSE(q.input == tower->bounds.at("v.blk.1.attn_k").input);
}

TEST(TowerTest, EncoderWithStandardisation) {
  const GgufFile file = OpenModel("tiny-dense-mmproj-f16");
  const auto tower = Must(ReadVisionTower(file, kTextWidth));
  ASSERT_TRUE(tower.has_value());
  EXPECT_TRUE(tower->config.standardize);
  EXPECT_EQ(tower->config.head_dim(), 36);
  EXPECT_TRUE(tower->bounds.empty());
  EXPECT_FALSE(Must(ReadAudioTower(file, kTextWidth)).has_value());
}

TEST(TowerTest, UnifiedModelHasNoHeads) {
  const GgufFile file = OpenModel("tiny-unified-mmproj-f16");
  const auto vision = Must(ReadVisionTower(file, kTextWidth));
  ASSERT_TRUE(vision.has_value());
  EXPECT_TRUE(vision->config.unified);
  EXPECT_EQ(vision->config.patch, 24);
  EXPECT_EQ(vision->config.pool, 1);
  EXPECT_EQ(vision->config.positions, 512);
  const auto audio = Must(ReadAudioTower(file, kTextWidth));
  ASSERT_TRUE(audio.has_value());
  EXPECT_TRUE(audio->config.unified);
  EXPECT_EQ(audio->config.inputs, 640);
}

TEST(TowerTest, Conformer) {
  const GgufFile file = OpenModel("tiny-e2b-mmproj-f16");
  const auto tower = Must(ReadAudioTower(file, kTextWidth));
  ASSERT_TRUE(tower.has_value());
  const AudioConfig& c = tower->config;
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.width, 64);
  EXPECT_EQ(c.head_dim(), 16);
  EXPECT_EQ(c.out_width, 96);
  EXPECT_EQ(c.kernel, 5);
  EXPECT_EQ(c.conv_channels[1], 8);
  EXPECT_EQ(tower->bounds.size(), 30u);
}

TEST(TowerTest, OllamaNamesMeanTheSameTensors) {
  const GgufFile ollama = OpenModel("tiny-e2b-ollama-Q4_K_M");
  const GgufFile projector = OpenModel("tiny-e2b-mmproj-f16");
  const auto found = Must(ReadAudioTower(ollama, kTextWidth));
  const auto expected = Must(ReadAudioTower(projector, kTextWidth));
  ASSERT_TRUE(found.has_value());
  ASSERT_TRUE(expected.has_value());
  for (const char* name :
       {"a.blk.1.ln2.weight", "a.blk.1.attn_post_norm.weight", "a.blk.1.attn_pre_norm.weight",
        "a.blk.1.attn_k_rel.weight", "a.input_projection.weight", "a.pre_encode.out.bias"}) {
    const auto data = [name](const GgufFile& file, const AudioTower& tower) {
      return file.data(*file.FindTensor(tower.weights.Find(name)->tensor));
    };
    const TensorInfo& a = *ollama.FindTensor(found->weights.Find(name)->tensor);
    const TensorInfo& b = *projector.FindTensor(expected->weights.Find(name)->tensor);
    EXPECT_EQ(a.dims, b.dims) << name;
    if (a.dtype != b.dtype) continue;  // a.input_projection, f16 in one and f32 in the other
    EXPECT_TRUE(std::ranges::equal(data(ollama, *found), data(projector, *expected))) << name;
  }
  const auto vision = Must(ReadVisionTower(ollama, kTextWidth));
  ASSERT_TRUE(vision.has_value());
  EXPECT_EQ(vision->config.pool, 3);
  EXPECT_EQ(
      vision->bounds.at("v.blk.2.ffn_down").output.high,
      Must(ReadVisionTower(projector, kTextWidth))->bounds.at("v.blk.2.ffn_down").output.high);
}

TEST(TowerTest, TextModelsHaveNone) {
  const GgufFile file = OpenModel("tiny-dense-Q4_K_M");
  EXPECT_FALSE(Must(ReadVisionTower(file, kTextWidth)).has_value());
  EXPECT_FALSE(Must(ReadAudioTower(file, kTextWidth)).has_value());
}

TEST_F(TowerFileTest, TowerOfAnotherSize) {
  EXPECT_THAT(VisionError(512),
              HasSubstr("the tower is for a text model of width 256, this one has width 512"));
  SetKey("clip.vision.projection_dim", uint32_t{128});
  EXPECT_THAT(VisionError(), HasSubstr("of width 128, this one has width 256"));
}

TEST_F(TowerFileTest, UnknownProjectorIsNamed) {
  Replace("gemma4v", "gemma5v");
  EXPECT_THAT(VisionError(),
              HasSubstr("projector of the file is 'gemma5v', expected 'gemma4v' or 'gemma4uv'"));
  EXPECT_EQ(AudioError(), "no error");
}

TEST(TowerTest, OtherFilesHaveNone) {
  for (const char* name : {"tiny-e2b-f16", "tiny-diffusion-f16"}) {
    const GgufFile file = OpenModel(name);
    EXPECT_FALSE(Must(ReadVisionTower(file, kTextWidth)).has_value()) << name;
    EXPECT_FALSE(Must(ReadAudioTower(file, kTextWidth)).has_value()) << name;
  }
}

TEST_F(TowerFileTest, MissingTensors) {
  Replace("v.blk.1.ln1.weight", "v.blk.1.lnX.weight");
  EXPECT_THAT(VisionError(), HasSubstr("'v.blk.1.ln1.weight' [96]"));
  Replace("mm.a.input_projection.weight", "mm.a.inputXprojection.weight");
  EXPECT_THAT(AudioError(), HasSubstr("[model.missing_tensor]"));
}

TEST_F(TowerFileTest, NumbersOutOfRange) {
  SetKey("clip.vision.attention.head_count", uint32_t{5});
  EXPECT_THAT(VisionError(), HasSubstr("width 96 and 5 heads"));
  SetKey("clip.vision.attention.head_count", uint32_t{0});
  EXPECT_THAT(VisionError(), HasSubstr("head_count' is 0, expected 1 to"));
  SetKey("clip.vision.patch_size", uint32_t{65});
  EXPECT_THAT(VisionError(), HasSubstr("patch_size' is 65, expected 1 to 64"));
  SetKey("clip.audio.attention.head_count", uint32_t{3});
  EXPECT_THAT(AudioError(), HasSubstr("width 64 and 3 heads"));
  SetKey("clip.audio.num_mel_bins", uint32_t{80});
  EXPECT_THAT(AudioError(), HasSubstr("num_mel_bins' is 80, expected 128 to 128"));
}

TEST_F(TowerFileTest, ShapesThatDoNotFit) {
  SetKey("clip.vision.embedding_length", uint32_t{192});
  EXPECT_THAT(VisionError(), HasSubstr("expected [192, positions, 2]"));
  SetKey("clip.audio.feed_forward_length", uint32_t{128});
  EXPECT_THAT(AudioError(), HasSubstr("[model.tensor_shape]"));
}

TEST_F(TowerFileTest, BoundsAreRanges) {
  SetValue("v.blk.0.attn_q.input_min", 0, 1e9F);
  EXPECT_THAT(VisionError(), HasSubstr("the input of 'v.blk.0.attn_q' is clipped to 1"));
  SetValue("v.blk.0.attn_q.input_min", 0, -kInfinity);
  EXPECT_EQ(VisionError(), "no error");
  SetValue("a.blk.2.conv_pw2.output_max", 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(AudioError(), HasSubstr("the output of 'a.blk.2.conv_pw2' is clipped"));
}

class OllamaFileTest : public TowerFileTest {
 protected:
  OllamaFileTest() : TowerFileTest("tiny-e2b-ollama-Q4_K_M") {}
};

TEST_F(OllamaFileTest, TableOfBoundsServesWithoutScalars) {
  Replace("v.blk.0.attn_k.input_max", "v.blk.0.attn_k.input_mXx");
  EXPECT_EQ(VisionError(), "no error");
  // Layer 0, attn_k, input_max.
  SetValue("v.clamp_data", 5, 7.5F);
  EXPECT_EQ(Must(ReadVisionTower(Parse(), kTextWidth))->bounds.at("v.blk.0.attn_k").input.high,
            7.5F);
  // Scalars come first.
  SetValue("v.clamp_data", 1, 7.5F);
  EXPECT_NE(Must(ReadVisionTower(Parse(), kTextWidth))->bounds.at("v.blk.0.attn_q").input.high,
            7.5F);
}

}  // namespace
}  // namespace rullama::gemma4
