// Decoding of files that the test writes: every kind of every format, damaged ones, and those that
// are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "media/encoders_test_util.h"
#include "media/picture.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

FileBytes Bytes(std::string_view text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::vector<uint8_t> Decoded(const FileBytes& file, uint32_t width, uint32_t height) {
  const auto picture = DecodePicture(file);
  if (!picture) {
    ADD_FAILURE() << picture.error().ToString();
    return {};
  }
  EXPECT_EQ(picture->width, width);
  EXPECT_EQ(picture->height, height);
  return picture->rgb;
}

Error ErrorOf(const FileBytes& file) {
  const auto picture = DecodePicture(file);
  if (picture) {
    ADD_FAILURE() << "decoded";
    return {};
  }
  return picture.error();
}

// Every shorter file is an error, never a picture with a part missing. `tail` bytes at the end may
// be lacking without a loss.
void ExpectCutsRefused(const FileBytes& file, size_t tail) {
  for (size_t size = 0; size + tail < file.size(); ++size) {
    const FileBytes cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    const auto picture = DecodePicture(cut);
    ASSERT_FALSE(picture.has_value()) << size << " of " << file.size() << " bytes";
  }
}

// 3 x 2 pixels of different grey: 10 20 30 / 40 50 60.
std::vector<uint8_t> SixGreys() {
  std::vector<uint8_t> rgb;
  for (uint8_t i = 1; i <= 6; ++i) rgb.insert(rgb.end(), 3, static_cast<uint8_t>(10 * i));
  return rgb;
}

// The greys of a picture without colour, divided by 10.
std::string Greys(const std::vector<uint8_t>& rgb) {
  std::string digits;
  for (size_t i = 0; i < rgb.size(); i += 3) digits += static_cast<char>('0' + rgb[i] / 10);
  return digits;
}

TEST(Png, TurnsByEveryOrientation) {
  constexpr std::string_view kUpright[] = {"123456", "321654", "654321", "456123",
                                           "142536", "415263", "635241", "362514"};
  for (uint8_t i = 1; i <= 8; ++i) {
    PngOptions options;
    options.orientation = i;
    const FileBytes file = EncodePng(3, 2, SixGreys(), options);
    EXPECT_EQ(Greys(Decoded(file, i < 5 ? 3 : 2, i < 5 ? 2 : 3)), kUpright[i - 1]) << int{i};
  }
}

TEST(Png, BlendsGreyWithAlphaOnWhite) {
  PngOptions options;
  options.colour_type = PNG_COLOR_TYPE_GRAY_ALPHA;
  EXPECT_THAT(Decoded(EncodePng(3, 1, {100, 255, 100, 0, 0, 128}, options), 3, 1),
              ElementsAre(100, 100, 100, 255, 255, 255, 127, 127, 127));
}

TEST(Png, KeepsTheHighByteOfSixteenBits) {
  PngOptions grey;
  grey.colour_type = PNG_COLOR_TYPE_GRAY;
  grey.depth = 16;
  EXPECT_THAT(Decoded(EncodePng(2, 1, {0x12, 0xFF, 0xFE, 0x80}, grey), 2, 1),
              ElementsAre(0x12, 0x12, 0x12, 0xFE, 0xFE, 0xFE));
  PngOptions colour;
  colour.colour_type = PNG_COLOR_TYPE_RGB_ALPHA;
  colour.depth = 16;
  EXPECT_THAT(Decoded(EncodePng(1, 1, {1, 255, 2, 255, 3, 255, 255, 255}, colour), 1, 1),
              ElementsAre(1, 2, 3));
}

TEST(Png, ExpandsPalettesAndFewBits) {
  PngOptions palette;
  palette.colour_type = PNG_COLOR_TYPE_PALETTE;
  palette.depth = 2;
  palette.palette = {1, 2, 3, 40, 50, 60, 7, 8, 9};
  palette.palette_alpha = {255, 0};
  EXPECT_THAT(Decoded(EncodePng(3, 1, {0b00011000}, palette), 3, 1),
              ElementsAre(1, 2, 3, 255, 255, 255, 7, 8, 9));
  PngOptions bits;
  bits.colour_type = PNG_COLOR_TYPE_GRAY;
  bits.depth = 1;
  EXPECT_THAT(Decoded(EncodePng(2, 1, {0b10000000}, bits), 2, 1),
              ElementsAre(255, 255, 255, 0, 0, 0));
}

TEST(Png, ReadsInterlacedFiles) {
  std::vector<uint8_t> samples;
  for (int i = 0; i < 9 * 11 * 3; ++i) samples.push_back(static_cast<uint8_t>(i * 7));
  PngOptions options;
  options.interlaced = true;
  const FileBytes file = EncodePng(9, 11, samples, options);
  EXPECT_THAT(Decoded(file, 9, 11), ElementsAreArray(samples));
  ExpectCutsRefused(file, 0);
}

// A chunk of PNG: its length, type, content and sum.
FileBytes Chunk(std::string_view type, const FileBytes& content) {
  FileBytes chunk;
  const auto number = [&](uLong value) {
    for (const int shift : {24, 16, 8, 0}) chunk.push_back(static_cast<std::byte>(value >> shift));
  };
  number(content.size());
  const FileBytes name = Bytes(type);
  chunk.insert(chunk.end(), name.begin(), name.end());
  chunk.insert(chunk.end(), content.begin(), content.end());
  number(crc32(0, reinterpret_cast<const Bytef*>(chunk.data()) + 4,
               static_cast<uInt>(chunk.size() - 4)));
  return chunk;
}

// Two frames, the second with pixels that nobody decodes.
TEST(Png, ReadsTheFirstFrameOfAnAnimation) {
  FileBytes file = EncodePng(3, 2, SixGreys());
  constexpr ptrdiff_t kHeaderEnd = 8 + 25, kLastChunk = 12;
  FileBytes frame(26);
  frame[7] = std::byte{3};
  frame[11] = std::byte{2};
  FileBytes first = Chunk("acTL", {{}, {}, {}, std::byte{2}, {}, {}, {}, {}});
  const FileBytes control = Chunk("fcTL", frame);
  first.insert(first.end(), control.begin(), control.end());
  frame[3] = std::byte{1};
  FileBytes second = Chunk("fcTL", frame);
  const FileBytes pixels = Chunk("fdAT", {{}, {}, {}, std::byte{2}, std::byte{99}});
  second.insert(second.end(), pixels.begin(), pixels.end());
  file.insert(file.end() - kLastChunk, second.begin(), second.end());
  file.insert(file.begin() + kHeaderEnd, first.begin(), first.end());
  EXPECT_EQ(Greys(Decoded(file, 3, 2)), "123456");
}

TEST(Png, RefusesDamage) {
  FileBytes file = EncodePng(3, 2, SixGreys());
  ExpectCutsRefused(file, 0);
  file[file.size() / 2] ^= std::byte{0x10};
  EXPECT_EQ(ErrorOf(file).id, "media.damaged");
}

// A header that promises more pixels than memory has, which the file need not hold.
TEST(Png, RefusesBombsByTheirHeader) {
  for (const auto& [width, height] : {std::pair{60'000u, 60'000u}, {0x7FFFFFFFu, 0x7FFFFFFFu}}) {
    PngOptions options;
    options.depth = 1;
    options.colour_type = PNG_COLOR_TYPE_GRAY;
    FileBytes file = EncodePng(1, 1, {0}, options);
    std::vector<uint8_t> header = {'I', 'H', 'D', 'R'};
    for (const uint32_t side : {width, height}) {
      for (int shift = 24; shift >= 0; shift -= 8)
        header.push_back(static_cast<uint8_t>(side >> shift));
    }
    for (const int byte : {1, 0, 0, 0, 0}) header.push_back(static_cast<uint8_t>(byte));
    const auto crc =
        static_cast<uint32_t>(crc32(0, header.data(), static_cast<uInt>(header.size())));
    for (int shift = 24; shift >= 0; shift -= 8)
      header.push_back(static_cast<uint8_t>(crc >> shift));
    std::memcpy(file.data() + 12, header.data(), header.size());
    const Error error = ErrorOf(file);
    EXPECT_EQ(error.id, "media.too_large") << error.message;
    EXPECT_THAT(error.message, HasSubstr(std::to_string(width)));
  }
}

TEST(Jpeg, ReadsProgressiveFilesThatLieOnTheirSide) {
  constexpr uint32_t kSide = 16;  // a whole block of the codec for each half
  std::vector<uint8_t> samples;
  for (uint32_t i = 0; i < 2 * kSide * kSide; ++i) {
    samples.insert(samples.end(), 3, i % (2 * kSide) < kSide ? 200 : 40);
  }
  JpegOptions options;
  options.progressive = true;
  options.orientation = 8;
  const FileBytes file = EncodeJpeg(2 * kSide, kSide, samples, options);
  const std::vector<uint8_t> rgb = Decoded(file, kSide, 2 * kSide);
  ASSERT_EQ(rgb.size(), samples.size());
  EXPECT_NEAR(rgb[0], 40, 2);  // what was right is at the top
  EXPECT_NEAR(rgb[rgb.size() - 1], 200, 2);
  ExpectCutsRefused(file, 2);  // without the marker of the end all pixels are there
}

TEST(Jpeg, ReadsGreyAndRefusesCuts) {
  JpegOptions options;
  options.components = 1;
  const FileBytes file = EncodeJpeg(8, 8, std::vector<uint8_t>(64, 77), options);
  for (const uint8_t value : Decoded(file, 8, 8)) EXPECT_NEAR(value, 77, 1);
  ExpectCutsRefused(file, 2);
}

// The inks of a file with the marker of Adobe are stored as the light that they let pass.
TEST(Jpeg, MixesTheInksOfPrint) {
  std::vector<uint8_t> light;
  for (int i = 0; i < 64; ++i) light.insert(light.end(), {255, 204, 51, 128});
  const std::vector<uint8_t> expected = {128, 102, 26};
  std::vector<uint8_t> ink = light;
  for (uint8_t& value : ink) value = static_cast<uint8_t>(255 - value);
  for (const bool ycck : {false, true}) {
    for (const bool adobe : {true, false}) {
      if (ycck && !adobe) continue;  // the marker alone tells it from CMYK
      JpegOptions options{.components = 4, .ycck = ycck, .adobe = adobe};
      const FileBytes file = EncodeJpeg(8, 8, adobe ? light : ink, options);
      const std::vector<uint8_t> rgb = Decoded(file, 8, 8);
      ASSERT_EQ(rgb.size(), 192u);
      for (size_t i = 0; i < rgb.size(); ++i) EXPECT_NEAR(rgb[i], expected[i % 3], 2) << i;
      ExpectCutsRefused(file, 2);
    }
  }
}

TEST(Jpeg, RefusesBombsByTheirHeader) {
  FileBytes file = EncodeJpeg(8, 8, std::vector<uint8_t>(192, 9));
  for (size_t i = 0; i + 8 < file.size(); ++i) {
    if (file[i] != std::byte{0xFF} || file[i + 1] != std::byte{0xC0}) continue;
    for (size_t k = 5; k < 9; ++k) file[i + k] = std::byte{0xFD};  // height and width
  }
  EXPECT_EQ(ErrorOf(file).id, "media.too_large");
}

TEST(Webp, ReadsColourAndAlpha) {
  const std::vector<uint8_t> samples = {1, 2, 3, 255, 9, 9, 9, 0, 0, 100, 200, 128};
  const FileBytes file = EncodeWebp(3, 1, samples);
  EXPECT_THAT(Decoded(file, 3, 1), ElementsAre(1, 2, 3, 255, 255, 255, 127, 177, 227));
  ExpectCutsRefused(file, 1);  // a chunk of odd size ends with a byte of padding
}

TEST(Gif, ReadsTheFirstFrameOnly) {
  const std::vector<uint8_t> colours = {0, 0, 0, 10, 20, 30, 70, 80, 90, 1, 1, 1};
  std::vector<uint8_t> indices;
  std::vector<uint8_t> expected;
  for (int i = 0; i < 3 * 11; ++i) {
    const auto index = static_cast<uint8_t>(i * i % 4);
    indices.push_back(index);
    for (size_t c = 0; c < 3; ++c) expected.push_back(index == 3 ? 255 : colours[index * 3 + c]);
  }
  for (const bool interlaced : {false, true}) {
    const FileBytes file = EncodeGif(3, 11, indices, colours, {interlaced, 3, 2});
    EXPECT_THAT(Decoded(file, 3, 11), ElementsAreArray(expected));
  }
  ExpectCutsRefused(EncodeGif(3, 11, indices, colours, {}), 4);  // ends of the frame and the file
}

// Rows are stored from the lowest up, each filled up to four bytes.
TEST(Bmp, ReadsPlainColours) {
  const std::vector<uint8_t> bgr = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto expected = ElementsAre(3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10);
  for (const uint32_t header : {12U, 40U, 124U}) {
    for (const bool top_down : {false, true}) {
      if (header == 12 && top_down) continue;
      const FileBytes file = EncodeBmp(2, 2, bgr, {.header = header, .top_down = top_down});
      EXPECT_THAT(Decoded(file, 2, 2), expected) << header;
      ExpectCutsRefused(file, 2);  // the last row is filled up with two bytes
    }
  }
}

TEST(Bmp, ReadsPalettes) {
  const std::vector<uint8_t> palette = {1, 2, 3, 40, 50, 60};
  struct Case {
    uint32_t bits;
    std::vector<uint8_t> row;
  };
  const Case cases[] = {{1, {0b0110'0000}}, {4, {0x01, 0x10}}, {8, {0, 1, 1, 0}}};
  for (const auto& [bits, row] : cases) {
    for (const uint32_t header : {12U, 40U}) {
      const FileBytes file =
          EncodeBmp(4, 1, row, {.header = header, .bits = bits, .palette = palette});
      const std::vector<uint8_t> rgb = Decoded(file, 4, 1);
      EXPECT_THAT(rgb, ElementsAre(1, 2, 3, 40, 50, 60, 40, 50, 60, 1, 2, 3)) << bits;
    }
  }
  EXPECT_EQ(ErrorOf(EncodeBmp(1, 1, std::vector<uint8_t>{2}, {.bits = 8, .palette = palette})).id,
            "media.damaged");
}

TEST(Bmp, ReadsChannelsWhereTheirMasksAre) {
  struct Case {
    BmpOptions options;
    std::vector<uint8_t> row;
    std::vector<uint8_t> rgb;
  };
  const std::vector<uint32_t> five_six_five = {0xF800, 0x07E0, 0x001F};
  const std::vector<uint32_t> rgba = {0xFF, 0xFF00, 0xFF0000, 0xFF000000};
  const Case cases[] = {
      // 1 bit without meaning, then 5 of each.
      {{.bits = 16}, {0xFF, 0x7F, 0x10, 0x80}, {255, 255, 255, 0, 0, 132}},
      {{.bits = 16, .compression = 3, .masks = five_six_five},
       {0xE0, 0x07, 0x00, 0x08},
       {0, 255, 0, 8, 0, 0}},
      {{.bits = 32}, {30, 20, 10, 0, 3, 2, 1, 255}, {10, 20, 30, 1, 2, 3}},
      // Half transparent, and white behind it.
      {{.header = 124, .bits = 32, .compression = 3, .masks = rgba},
       {0, 100, 200, 128, 10, 20, 30, 255},
       {127, 177, 227, 10, 20, 30}},
      {{.header = 40, .bits = 32, .compression = 6, .masks = rgba},
       {0, 100, 200, 128, 10, 20, 30, 255},
       {127, 177, 227, 10, 20, 30}},
      // Alpha that nobody has written.
      {{.header = 56, .bits = 32, .compression = 3, .masks = rgba},
       {0, 100, 200, 0, 10, 20, 30, 0},
       {0, 100, 200, 10, 20, 30}},
  };
  for (const Case& test : cases) {
    const FileBytes file = EncodeBmp(2, 1, test.row, test.options);
    EXPECT_THAT(Decoded(file, 2, 1), ElementsAreArray(test.rgb)) << test.options.bits;
    ExpectCutsRefused(file, 1);
  }
}

TEST(Bmp, RefusesWhatItDoesNotReadOrThatIsWrong) {
  const std::vector<uint8_t> four(4);
  struct Case {
    BmpOptions options;
    const char* id;
    const char* text;
  };
  const Case cases[] = {
      {{.bits = 8, .compression = 1}, "media.format", "with run lengths"},
      {{.bits = 4, .compression = 2}, "media.format", "with run lengths"},
      {{.compression = 4}, "media.format", "with a JPEG file inside"},
      {{.compression = 5}, "media.format", "with a PNG file inside"},
      {{.compression = 11}, "media.format", "with an unknown compression"},
      {{.header = 16}, "media.damaged", "header"},
      {{.bits = 15}, "media.damaged", "number of bits"},
      {{.bits = 24, .compression = 3}, "media.damaged", "24 bits and masks"},
      {{.bits = 8, .compression = 3}, "media.damaged", "a palette and masks"},
      {{.bits = 32, .compression = 3, .masks = {0xFF, 0xFF00, 0}}, "media.damaged", "masks"},
      {{.bits = 32, .compression = 3, .masks = {0xFF, 0xFF00, 0xFF00}}, "media.damaged", "masks"},
      {{.bits = 32, .compression = 3, .masks = {0xF0F, 0xF000, 0xF0000}}, "media.damaged", "masks"},
      {{.bits = 16, .compression = 3, .masks = {0xFF0000, 0xFF00, 0xFF}}, "media.damaged", "masks"},
  };
  for (const Case& test : cases) {
    const Error error = ErrorOf(EncodeBmp(1, 1, four, test.options));
    EXPECT_EQ(error.id, test.id) << error.message;
    EXPECT_THAT(error.message, HasSubstr(test.text));
  }
  EXPECT_EQ(ErrorOf(EncodeBmp(0, 1, four)).id, "media.damaged");
  EXPECT_EQ(ErrorOf(EncodeBmp(0x80000000U, 1, four)).id, "media.damaged");
  EXPECT_EQ(ErrorOf(EncodeBmp(60'000, 1, four)).id, "media.damaged") << "there are no pixels";
  EXPECT_EQ(ErrorOf(EncodeBmp(70'000, 1, four)).id, "media.too_large");
}

TEST(Pictures, OfOnePixelAreDecoded) {
  EXPECT_THAT(Decoded(EncodePng(1, 1, {5, 6, 7}), 1, 1), ElementsAre(5, 6, 7));
  EXPECT_THAT(Decoded(EncodeWebp(1, 1, std::vector<uint8_t>{5, 6, 7, 255}), 1, 1),
              ElementsAre(5, 6, 7));
  EXPECT_THAT(Decoded(EncodeGif(1, 1, {1}, std::vector<uint8_t>{0, 0, 0, 5, 6, 7}), 1, 1),
              ElementsAre(5, 6, 7));
}

TEST(Pictures, OfOtherFormatsAreRefusedByName) {
  using namespace std::string_view_literals;
  struct Case {
    std::string_view file;
    std::string_view name;
  };
  constexpr Case kCases[] = {
      {"II*\0\x08\0\0\0"sv, "TIFF"},
      {"MM\0*\0\0\0\x08"sv, "TIFF"},
      {"<svg xmlns='x'>"sv, "SVG"},
      {"%PDF-1.4"sv, "PDF"},
      {""sv, "empty"},
      {"hello"sv, "68 65 6c 6c 6f"},
  };
  for (const Case& test : kCases) {
    const Error error = ErrorOf(Bytes(test.file));
    EXPECT_EQ(error.id, "media.format");
    EXPECT_THAT(error.message, HasSubstr(test.name));
    EXPECT_THAT(error.message, HasSubstr("JPEG, PNG, WebP, GIF"));
  }
}

TEST(Pictures, HaveHeadersThatTellWhatDecodingTakes) {
  struct Case {
    FileBytes file;
    uint64_t decoding_bytes;
  };
  const std::vector<uint8_t> grey(40 * 24 * 3, 77);
  const Case cases[] = {
      {EncodePng(40, 24, grey), 40 * 24 * 3},
      {EncodeJpeg(40, 24, grey), 40 * 24 * 3},
      // The coefficients of all scans, of 40 x 24 and twice 20 x 12 in blocks of 8 x 8, and a copy.
      {EncodeJpeg(40, 24, grey, {.progressive = true, .orientation = 6}),
       2 * 40 * 24 * 3 + (5 * 3 + 2 * 3 * 2) * 64 * 2},
      {EncodeJpeg(40, 24, std::vector<uint8_t>(40 * 24 * 4, 77), {.components = 4}),
       40 * 24 * 3 + 40 * 4},
      {EncodeWebp(40, 24, std::vector<uint8_t>(40 * 24 * 4, 77)), 40 * 24 * (4 + 4)},
      {EncodeBmp(40, 24, grey), 40 * 24 * 3},
      {EncodeGif(40, 24, std::vector<uint8_t>(40 * 24), std::vector<uint8_t>(6)), 40 * 24 * 4},
  };
  for (const Case& test : cases) {
    const auto header = ReadPictureHeader(test.file);
    ASSERT_TRUE(header.has_value()) << header.error().message;
    EXPECT_EQ(header->width, 40u);
    EXPECT_EQ(header->height, 24u);
    EXPECT_EQ(header->decoding_bytes, test.decoding_bytes);
    EXPECT_EQ(ReadPictureHeader(test.file, {.max_pixels = 959}).error().id, "media.too_large");
    EXPECT_EQ(ReadPictureHeader(test.file, {.max_side = 39}).error().id, "media.too_large");
    EXPECT_EQ(DecodePicture(test.file, {.max_side = 39}).error().id, "media.too_large");
  }
}

TEST(Pictures, AreDecodedNoFurtherOnceToldToStop) {
  std::stop_source stop;
  const std::vector<uint8_t> grey(40 * 24 * 3, 77);
  const PictureLimits limits{.stop = stop.get_token()};
  EXPECT_TRUE(DecodePicture(EncodePng(40, 24, grey), limits).has_value());
  stop.request_stop();
  for (const FileBytes& file :
       {EncodePng(40, 24, grey), EncodeJpeg(40, 24, grey), EncodeBmp(40, 24, grey)}) {
    EXPECT_EQ(DecodePicture(file, limits).error().id, "run.cancelled");
  }
}

TEST(Pictures, AreHeldToTheLimit) {
  const FileBytes file = EncodePng(3, 2, SixGreys());
  EXPECT_TRUE(DecodePicture(file, {6}).has_value());
  const auto picture = DecodePicture(file, {5});
  ASSERT_FALSE(picture.has_value());
  EXPECT_EQ(picture.error().id, "media.too_large");
}

}  // namespace
}  // namespace rullama
