// Tests of the processing of decoded pictures: size, resampling, patches, hashes.
#include "media/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "media/media_hash.h"
#include "media/patches.h"
#include "media/picture_size.h"
#include "media/resize.h"

namespace rullama {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Computed by get_aspect_ratio_preserving_size of transformers 5.23.
TEST(FitToBudget, FillsTheBudget) {
  struct Case {
    uint32_t width, height, budget;
    BlockGrid grid;
  };
  constexpr Case kCases[] = {{310, 84, 70, {16, 4}},    {21, 34, 70, {6, 10}},
                             {120, 176, 280, {13, 20}}, {1200, 8, 70, {70, 1}},
                             {8, 1200, 70, {1, 70}},    {1, 1, 280, {16, 16}},
                             {1, 100, 1120, {3, 334}}};
  for (const Case& test : kCases) {
    const auto grid = FitToBudget(test.width, test.height, test.budget, 48);
    ASSERT_TRUE(grid.has_value()) << grid.error().message;
    EXPECT_EQ(grid->columns, test.grid.columns) << test.width << " x " << test.height;
    EXPECT_EQ(grid->rows, test.grid.rows) << test.width << " x " << test.height;
  }
}

TEST(DefaultImageTokens, KeepAllPixelsUpToTheDefault) {
  EXPECT_EQ(DefaultImageTokens(1, 1), 70);
  EXPECT_EQ(DefaultImageTokens(48 * 7, 48 * 10), 70);
  EXPECT_EQ(DefaultImageTokens(48 * 7, 48 * 10 + 1), 140);
  EXPECT_EQ(DefaultImageTokens(640, 480), 140);
  EXPECT_EQ(DefaultImageTokens(1024, 768), 280);
  EXPECT_EQ(DefaultImageTokens(UINT32_MAX, UINT32_MAX), 280);
}

TEST(FitToBudget, NeverExceedsTheBudget) {
  for (const uint32_t budget : kImageTokenBudgets) {
    for (const uint32_t width : {1u, 2u, 47u, 48u, 1000u, 4096u, 64'000'000u}) {
      for (const uint32_t height : {1u, 3u, 48u, 777u, 64'000'000u}) {
        const auto grid = FitToBudget(width, height, budget, 48);
        if (!grid) {
          EXPECT_EQ(grid.error().id, "media.shape");
          continue;
        }
        EXPECT_LE(grid->tokens(), budget);
        EXPECT_GE(grid->tokens(), 1u);
      }
    }
  }
}

TEST(Resize, KeepsFlatColoursAndEqualSizes) {
  const Picture flat{7, 5, std::vector<uint8_t>(size_t{7} * 5 * 3, 93)};
  for (const uint32_t width : {1u, 3u, 7u, 48u}) {
    for (const uint32_t height : {1u, 5u, 33u}) {
      const Picture resized = ResizeBicubic(flat, width, height);
      EXPECT_EQ(resized.rgb.size(), size_t{width} * height * 3);
      EXPECT_THAT(resized.rgb, Each(93));
    }
  }
}

// Computed by Image.resize(BICUBIC) of Pillow 13.
TEST(Resize, AgreesWithPillow) {
  Picture ramp{4, 1, {}};
  for (const int value : {0, 255, 10, 100})
    ramp.rgb.insert(ramp.rgb.end(), 3, static_cast<uint8_t>(value));
  const auto red = [](const Picture& picture) {
    std::vector<int> values;
    for (size_t i = 0; i < picture.rgb.size(); i += 3) values.push_back(picture.rgb[i]);
    return values;
  };
  EXPECT_THAT(red(ResizeBicubic(ramp, 8, 1)), ElementsAre(0, 54, 215, 221, 59, 13, 78, 108));
  EXPECT_THAT(red(ResizeBicubic(ramp, 2, 1)), ElementsAre(114, 81));
}

TEST(Patches, StandCellByCellWithChannelsOutside) {
  // Pixels of 4 x 4 count up, red only; patches of one pixel, cells of 2 x 2.
  Picture picture{4, 4, {}};
  for (int i = 0; i < 16; ++i) {
    picture.rgb.insert(picture.rgb.end(), {static_cast<uint8_t>(i), 100, 255});
  }
  const PicturePatches patches = CutPatches(picture, 1, 2);
  ASSERT_EQ(patches.count(), 16u);
  EXPECT_EQ(patches.width, 3u);
  EXPECT_THAT(patches.x, ElementsAre(0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_THAT(patches.y, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3));
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(patches.values[i * 3], static_cast<float>(patches.y[i] * 4 + patches.x[i]) / 255);
    EXPECT_EQ(patches.values[i * 3 + 2], 1.0F);
  }
  // One patch: red rows, then green ones, then blue ones.
  const PicturePatches one = CutPatches(picture, 4, 1);
  ASSERT_EQ(one.count(), 1u);
  EXPECT_EQ(one.values[5], 5.0F / 255);
  EXPECT_EQ(one.values[16], 100.0F / 255);
  EXPECT_EQ(one.values[47], 1.0F);
}

TEST(MediaHash, DependsOnPixelsSizeAndBudget) {
  const Picture picture{2, 1, {1, 2, 3, 4, 5, 6}};
  const MediaHash hash = HashPicture(picture, 280);
  EXPECT_EQ(HashPicture(picture, 280), hash);
  EXPECT_NE(HashPicture(picture, 70), hash);
  EXPECT_NE(HashPicture({1, 2, picture.rgb}, 280), hash);
  EXPECT_NE(HashPicture({2, 1, {1, 2, 3, 4, 5, 7}}, 280), hash);
  EXPECT_NE(HashSound(std::vector<float>{1, 2}), HashSound(std::vector<float>{1, 3}));
}

}  // namespace
}  // namespace rullama
