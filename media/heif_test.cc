// HEIC and AVIF. The files of tests/fuzz/corpus/picture come from libheif's encoders: 40 x 24
// pixels whose red grows with x, whose green grows with y, and whose blue is constant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "media/heif_coded_size.h"
#include "media/picture.h"

namespace rullama {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::vector<std::byte> BytesOf(std::string_view text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::vector<std::byte> FileOf(const std::string& name) {
  std::ifstream file(std::string(RULLAMA_SOURCE_DIR) + "/tests/fuzz/corpus/picture/" + name,
                     std::ios::binary);
  EXPECT_TRUE(file) << name;
  return BytesOf(std::string(std::istreambuf_iterator<char>(file), {}));
}

#if defined(RULLAMA_HEIF)

constexpr uint32_t kWidth = 40, kHeight = 24;

struct Pixel {
  int red = 0, green = 0, blue = 0;
};
Pixel PixelAt(const Picture& picture, uint32_t x, uint32_t y) {
  const uint8_t* const rgb = picture.rgb.data() + (size_t{y} * picture.width + x) * 3;
  return {rgb[0], rgb[1], rgb[2]};
}
Pixel Drawn(uint32_t x, uint32_t y) {
  return {static_cast<int>(x) * 6, static_cast<int>(y) * 10, 128};
}
constexpr Pixel kWhite = {255, 255, 255};

// Compares pixels after lossy coding at quality 90.
void ExpectNear(const Pixel& pixel, const Pixel& expected) {
  constexpr int kMost = 14;
  EXPECT_LE(std::abs(pixel.red - expected.red), kMost);
  EXPECT_LE(std::abs(pixel.green - expected.green), kMost);
  EXPECT_LE(std::abs(pixel.blue - expected.blue), kMost);
}

TEST(Heif, FilesOfPhonesAndBrowsersAreDecoded) {
  for (const char* name : {"plain.heic", "plain.avif", "ten-bits.heic"}) {
    SCOPED_TRACE(name);
    const auto picture = DecodePicture(FileOf(name));
    ASSERT_TRUE(picture) << picture.error().ToString();
    ASSERT_EQ(picture->width, kWidth);
    ASSERT_EQ(picture->height, kHeight);
    for (const auto& [x, y] : {std::pair(0U, 0U), {39U, 0U}, {0U, 23U}, {39U, 23U}, {17U, 9U}}) {
      ExpectNear(PixelAt(*picture, x, y), Drawn(x, y));
    }
  }
}

TEST(Heif, TransparentPixelsAreBlendedWithWhite) {
  for (const char* name : {"alpha.heic", "alpha.avif"}) {
    SCOPED_TRACE(name);
    const auto picture = DecodePicture(FileOf(name));
    ASSERT_TRUE(picture) << picture.error().ToString();
    ExpectNear(PixelAt(*picture, 8, 12), Drawn(8, 12));
    ExpectNear(PixelAt(*picture, 32, 12), kWhite);
  }
}

// The file has a quarter turn clockwise, so that its first pixel is the last row's.
TEST(Heif, PicturesAreTurnedAsTheFileSays) {
  const auto picture = DecodePicture(FileOf("turned.heic"));
  ASSERT_TRUE(picture) << picture.error().ToString();
  EXPECT_EQ(picture->width, kHeight);
  EXPECT_EQ(picture->height, kWidth);
  ExpectNear(PixelAt(*picture, 0, 0), Drawn(0, kHeight - 1));
  ExpectNear(PixelAt(*picture, kHeight - 1, kWidth - 1), Drawn(kWidth - 1, 0));
}

TEST(Heif, HeadersTellWhatDecodingTakes) {
  for (const char* name : {"plain.heic", "plain.avif", "alpha.heic"}) {
    SCOPED_TRACE(name);
    const auto file = FileOf(name);
    const auto header = ReadPictureHeader(file);
    ASSERT_TRUE(header) << header.error().ToString();
    EXPECT_EQ(header->width, kWidth);
    EXPECT_EQ(header->height, kHeight);
    EXPECT_GE(header->decoding_bytes, uint64_t{kWidth} * kHeight * 12);
    for (const PictureLimits& limits : {PictureLimits{.max_pixels = kWidth * kHeight - 1},
                                        PictureLimits{.max_side = kWidth - 1}}) {
      EXPECT_EQ(ReadPictureHeader(file, limits).error().id, "media.too_large");
      EXPECT_EQ(DecodePicture(file, limits).error().id, "media.too_large");
    }
  }
}

TEST(Heif, FilesThatEndEarlyAreDamaged) {
  for (const char* name : {"plain.heic", "plain.avif", "alpha.avif"}) {
    const auto file = FileOf(name);
    for (size_t size = 12; size + 20 < file.size(); size += 7) {
      const auto picture = DecodePicture(std::span(file).first(size));
      ASSERT_FALSE(picture) << name << " " << size;
      EXPECT_THAT(picture.error().id, AnyOf("media.damaged", "media.format")) << name << size;
    }
  }
}

TEST(Heif, CodedSizesAreFound) {
  using media_internal::CodedSize;
  const auto size_of = [](const std::string& name) -> std::optional<CodedSize> {
    const auto file = FileOf(name);
    const auto sizes =
        media_internal::ReadHeifSizes({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
    if (!sizes) return std::nullopt;
    return sizes->coded;
  };
  EXPECT_EQ(size_of("plain.avif"), (CodedSize{kWidth, kHeight}));
  EXPECT_EQ(size_of("lying.heic"), (CodedSize{8192, 8192}));
  EXPECT_EQ(size_of("lying.avif"), (CodedSize{8192, 8192}));
  // Whole blocks of eight.
  EXPECT_EQ(size_of("plain.heic")->width % 8, 0U);
  EXPECT_LE(size_of("plain.heic")->pixels(), uint64_t{64} * 64);
  EXPECT_EQ(size_of("palette.png"), std::nullopt);
  // Found although a NAL unit of no bytes stands before it.
  EXPECT_EQ(size_of("hidden.heic"), (CodedSize{8192, 8192}));
  // Sides of 40 and 24 with 16 bits each: a frame may say what it likes.
  EXPECT_EQ(size_of("spare-bits.avif"), (CodedSize{65'536, 65'536}));
}

// A file whose coded picture has 8,192 x 8,192 pixels: its header says 40 x 24.
TEST(Heif, CodedPicturesCountBeforeTheyAreDecoded) {
  for (const char* name : {"lying.heic", "lying.avif"}) {
    SCOPED_TRACE(name);
    const auto file = FileOf(name);
    EXPECT_LT(file.size(), 200'000U);
    const auto header = ReadPictureHeader(file);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().id, "media.too_large");
    EXPECT_EQ(DecodePicture(file).error().id, "media.too_large");
    const PictureLimits large{.max_pixels = 100'000'000};
    EXPECT_GT(ReadPictureHeader(file, large)->decoding_bytes, uint64_t{8192} * 8192 * 12);
  }
}

// Two tiles of 40 x 24, as phones write larger ones.
TEST(Heif, TilesAreJoined) {
  for (const char* name : {"grid.heic", "grid.avif"}) {
    SCOPED_TRACE(name);
    const auto picture = DecodePicture(FileOf(name));
    ASSERT_TRUE(picture) << picture.error().ToString();
    ASSERT_EQ(picture->width, 2 * kWidth);
    ASSERT_EQ(picture->height, kHeight);
    for (const auto& [x, y] : {std::pair(0U, 0U), {39U, 23U}, {40U, 0U}, {79U, 23U}, {57U, 9U}}) {
      ExpectNear(PixelAt(*picture, x, y), Drawn(x % kWidth, y));
    }
  }
}

// Puts two numbers of 16 bits at a place that follows `type` by `skip` bytes.
void SetSides(std::vector<std::byte>& file, std::string_view type, size_t skip, uint32_t width,
              uint32_t height) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  size_t at = text.rfind(type);
  ASSERT_NE(at, std::string_view::npos);
  at += type.size() + skip;
  for (const uint32_t byte : {width >> 8, width & 255, height >> 8, height & 255}) {
    file[at++] = static_cast<std::byte>(byte);
  }
}

// Two tiles of 40 x 24 in a picture of 70 x 20.
TEST(Heif, TilesMayStickOut) {
  constexpr uint32_t kShownWidth = 70, kShownHeight = 20;
  constexpr size_t kVersionRowsColumns = 4;
  auto file = FileOf("grid.heic");
  SetSides(file, "idat", kVersionRowsColumns, kShownWidth, kShownHeight);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const size_t box = text.rfind("ispe") + 4 + 4;  // after version and flags
  file[box + 3] = std::byte{kShownWidth};
  file[box + 7] = std::byte{kShownHeight};
  const auto picture = DecodePicture(file);
  ASSERT_TRUE(picture) << picture.error().ToString();
  ASSERT_EQ(picture->width, kShownWidth);
  ASSERT_EQ(picture->height, kShownHeight);
  for (const auto& [x, y] : {std::pair(0U, 0U), {39U, 19U}, {40U, 0U}, {69U, 19U}}) {
    ExpectNear(PixelAt(*picture, x, y), Drawn(x % kWidth, y));
  }
}

// 4,096 tiles of 64 x 64 are four times as many pixels as a square of 1,984 with a row and a column
// of tiles around it.
TEST(Heif, GridsMayNameTilesOfFourTimesTheirPixels) {
  constexpr uint32_t kSide = 1984;
  constexpr size_t kVersionRowsColumns = 4;
  for (const uint32_t width : {kSide, kSide - 1}) {
    auto file = FileOf("repeated-tile.heic");
    SetSides(file, "idat", kVersionRowsColumns, width, kSide);
    const auto sizes =
        media_internal::ReadHeifSizes({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
    EXPECT_EQ(sizes.has_value(), width == kSide);
  }
}

struct Refused {
  const char* file;
  const char* id;
  const char* why;
};

// Files that libheif 1.15 would read in another way than the check of their sizes, follow without
// an end, or allocate or copy for without a limit. Each fails on its header.
TEST(Heif, FilesThatCouldDeceiveTheCheckAreRefused) {
  for (const Refused& refused : {
           // The grid's own size counts, not that of its box (40 x 24).
           Refused{"lying-grid.heic", "media.too_large", ""},
           {"overlay.heic", "media.format", "neither HEVC, AV1 nor a grid"},
           {"nested-grid.heic", "media.format", "a tile is not coded"},
           {"short-lengths.heic", "media.format", "lengths of other than four bytes"},
           {"pieces.heic", "media.format", "in several pieces"},
           {"index.heic", "media.format", "has indices"},
           {"odd-places.heic", "media.damaged", "odd sizes"},
           {"after-idat.heic", "media.damaged", "ends after the file"},
           {"shared.heic", "media.damaged", "larger than the file"},
           {"loop.heic", "media.format", "transparency has transparency"},
           {"hidden.heic", "media.too_large", ""},
           // A grid of 40 x 24 with one tile of 64 x 64 four thousand times.
           {"repeated-tile.heic", "media.damaged", "more than four times its pixels"},
           {"split.avif", "media.damaged", "ends early"},
           {"spare-bits.avif", "media.too_large", ""},
       }) {
    SCOPED_TRACE(refused.file);
    const auto file = FileOf(refused.file);
    const auto header = ReadPictureHeader(file);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().id, refused.id);
    EXPECT_THAT(header.error().message, HasSubstr(refused.why));
    const auto picture = DecodePicture(file);
    ASSERT_FALSE(picture);
    EXPECT_EQ(picture.error().id, refused.id);
  }
}

// A grid of 800 x 600 whose box says 40 x 24 is counted as what it takes, and is damage.
TEST(Heif, GridsCountAsWhatTheyAllocate) {
  const auto file = FileOf("larger-grid.heic");
  const auto header = ReadPictureHeader(file);
  ASSERT_TRUE(header) << header.error().ToString();
  EXPECT_GT(header->decoding_bytes, uint64_t{800} * 600 * 12);
  const auto picture = DecodePicture(file);
  ASSERT_FALSE(picture);
  EXPECT_EQ(picture.error().id, "media.damaged");
}

// Sides that libheif 1.15 overflows with are refused whatever the caller allows.
TEST(Heif, SidesHaveALimitOfTheirOwn) {
  const PictureLimits large{.max_pixels = uint64_t{1} << 40, .max_side = 1U << 20};
  const auto picture = DecodePicture(FileOf("lying-grid.heic"), large);
  ASSERT_FALSE(picture);
  EXPECT_EQ(picture.error().id, "media.too_large");
}

// The boxes say 136 x 72 of both, the coded transparency has 64 x 64.
TEST(Heif, TransparencyOfAnotherSizeIsDamage) {
  const auto picture = DecodePicture(FileOf("small-alpha.heic"));
  ASSERT_FALSE(picture);
  EXPECT_EQ(picture.error().id, "media.damaged");
  EXPECT_THAT(picture.error().message, HasSubstr("another size than its header"));
}

// The header says 80 x 24, the coded picture has another size.
TEST(Heif, HeadersThatLieAreDamage) {
  auto file = FileOf("plain.avif");
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const size_t width = text.find("ispe") + 4 + 4 + 3;  // after version and flags, the low byte
  ASSERT_LT(width, file.size());
  ASSERT_EQ(file[width], std::byte{kWidth});
  file[width] = std::byte{80};
  const auto picture = DecodePicture(file);
  ASSERT_FALSE(picture);
  EXPECT_EQ(picture.error().id, "media.damaged");
}

// With sanitizers, also that such a picture is freed.
TEST(Heif, UnknownColoursAreDamage) {
  for (const char* const name : {"unknown-colours.avif", "unknown-colours-twice.avif"}) {
    SCOPED_TRACE(name);
    const auto picture = DecodePicture(FileOf(name));
    ASSERT_FALSE(picture);
    EXPECT_EQ(picture.error().id, "media.damaged");
    EXPECT_THAT(picture.error().message, HasSubstr("Unknown NCLX"));
  }
}

#else

TEST(Heif, FilesAreRefusedByName) {
  for (const auto& [name, format] : {std::pair("plain.heic", "HEIC"), {"plain.avif", "AVIF"}}) {
    const auto picture = DecodePicture(FileOf(name));
    ASSERT_FALSE(picture);
    EXPECT_EQ(picture.error().id, "media.format");
    EXPECT_THAT(picture.error().message, HasSubstr(format));
    EXPECT_THAT(picture.error().message, HasSubstr("need a build with libheif"));
  }
}

#endif

}  // namespace
}  // namespace rullama
