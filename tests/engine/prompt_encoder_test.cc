#include "engine/prompt_encoder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/plugin/registry.h"
#include "core/reference/reference_backend.h"
#include "models/registry.h"

namespace rullama {
namespace {

constexpr int64_t kTextWidth = 16;

// A small image tower of random weights on the reference backend.
class PromptEncoderTest : public ::testing::Test {
 protected:
  PromptEncoderTest() : file_(WriteTowers()), towers_(Must(ReadTowers(file_))) {
    registry_.RegisterBuiltIn("reference", ReferencePluginQuery);
    device_ = Must(Must(registry_.Find("reference"))->Open(0, {}));
    encoder_ = std::make_unique<MediaEncoder>(towers_, file_, std::vector<Device*>{device_.get()},
                                              PlacementPolicy{});
  }

  static GgufFile WriteTowers() {
    ArchitectureConfig architecture;
    architecture.width = kTextWidth;
    architecture.vision = {.layers = 0, .width = 8, .patch = 4, .positions = 80};
    const std::string path = ::testing::TempDir() + "/prompt_encoder.gguf";
    const Status status = ModelFamilies().front()->write_synthetic_towers(
        architecture, {.mix = Must(FindQuantMix("F16")), .name = "test"}, path);
    EXPECT_TRUE(status) << status.error().ToString();
    return Must(GgufFile::Open(path));
  }
  // Encodes the missing media of the rows [first, end) of a prompt. Returns their number.
  int64_t EncodeMissing(PromptEncoder& prompt, int64_t first, int64_t end) {
    int64_t encoded = 0;
    for (; const auto missing = prompt.Missing(first, end); ++encoded) {
      auto soft = Must(encoder_->Encode(prompt.medium(*missing)));
      prompt.Take(*missing, std::make_shared<const SoftTokens>(std::move(soft)));
    }
    return encoded;
  }
  // A scaled picture of one colour: 8 x 8 squares of 12 x 12 pixels.
  static std::shared_ptr<const DecodedMedium> MakePicture(uint8_t colour) {
    DecodedMedium medium{.image_tokens = 70, .tokens = 64};
    medium.scaled = {.width = 96, .height = 96, .rgb = std::vector<uint8_t>(27'648, colour)};
    return std::make_shared<const DecodedMedium>(std::move(medium));
  }

  // The same towers with a weight that is not a number.
  static GgufFile WriteTowersWithNan() {
    const GgufFile file = WriteTowers();
    const TensorInfo* weight = file.FindTensor("v.patch_embd.weight");
    EXPECT_NE(weight, nullptr);
    std::string bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    bytes.replace(weight->offset, 4, 4, '\xFF');  // in f16 and in f32
    const std::string path = ::testing::TempDir() + "/prompt_encoder_nan.gguf";
    std::ofstream(path, std::ios::binary) << bytes;
    return Must(GgufFile::Open(path));
  }

  GgufFile file_;
  Towers towers_;
  std::shared_ptr<PluginHost> host_ = std::make_shared<PluginHost>(HostOptions{});
  Registry registry_{RegistryOptions::FromProcess(), host_};
  std::unique_ptr<Device> device_;
  std::unique_ptr<MediaEncoder> encoder_;
};

TEST_F(PromptEncoderTest, SoftTokensThatAreNoNumbersAreAnError) {
  const GgufFile file = WriteTowersWithNan();
  const Towers towers = Must(ReadTowers(file));
  MediaEncoder encoder(towers, file, {device_.get()}, PlacementPolicy{});
  const auto soft = encoder.Encode(*MakePicture(200));
  ASSERT_FALSE(soft);
  EXPECT_EQ(soft.error().id, "backend.nan");
}

TEST_F(PromptEncoderTest, EncodesWhatIsReadAndGivesUpWhatIsNotNeeded) {
  std::vector<PlacedMedium> media = {{.first = 2, .medium = MakePicture(0)},
                                     {.first = 70, .medium = MakePicture(200)}};
  const std::weak_ptr<const DecodedMedium> first = media[0].medium;
  const std::weak_ptr<const DecodedMedium> second = media[1].medium;
  PromptEncoder prompt(std::move(media), {{.first = 2, .count = 64}, {.first = 70, .count = 64}});
  EXPECT_EQ(EncodeMissing(prompt, 0, 2), 0);
  EXPECT_TRUE(prompt.rows()[0].values.empty());

  ASSERT_EQ(EncodeMissing(prompt, 2, 40), 1);
  EXPECT_EQ(prompt.rows()[0].values.size(), 64u * kTextWidth);
  EXPECT_TRUE(prompt.rows()[1].values.empty());
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(second.expired());
  // The rest of its rows needs its soft tokens, and no picture.
  prompt.Drop(40);
  const float* const values = prompt.rows()[0].values.data();
  ASSERT_EQ(EncodeMissing(prompt, 40, 80), 1);
  EXPECT_EQ(prompt.rows()[0].values.data(), values);
  EXPECT_TRUE(second.expired());
  prompt.Drop(80);
  EXPECT_TRUE(prompt.rows()[0].values.empty());
  EXPECT_EQ(prompt.rows()[1].values.size(), 64u * kTextWidth);
}

TEST_F(PromptEncoderTest, RowsThatNeedNoReadingNeedNoPicture) {
  std::vector<PlacedMedium> media = {{.first = 1, .medium = MakePicture(9)}};
  const std::weak_ptr<const DecodedMedium> picture = media[0].medium;
  PromptEncoder prompt(std::move(media), {{.first = 1, .count = 64}});
  prompt.Drop(64);
  EXPECT_FALSE(picture.expired());
  prompt.Drop(65);
  EXPECT_TRUE(picture.expired());
}

}  // namespace
}  // namespace rullama
