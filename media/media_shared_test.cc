// The media files of ../shared/goldens/tiny-media against what transformers and Pillow make of
// them. The tolerances are those of the README there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/base/read_file_test_util.h"
#include "media/log_mel.h"
#include "media/picture.h"
#include "media/picture_size.h"
#include "media/resize.h"
#include "media/sound.h"

namespace rullama {
namespace {

using Json = nlohmann::json;

constexpr char kFolder[] = RULLAMA_SOURCE_DIR "/../shared/goldens/tiny-media/";

template <typename T>
std::vector<T> ReadGolden(const std::string& name) {
  const std::string bytes = ReadWholeFile(kFolder + name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// The media of a golden of `prefix` that are of `kind`: "image" or "audio".
std::vector<Json> MediaOf(const std::string& prefix, const std::string& kind) {
  std::ifstream file(kFolder + prefix + ".golden.json");
  const Json golden = Json::parse(file);
  std::vector<Json> media;
  for (const Json& medium : golden["media"]) {
    if (medium["kind"] == kind) media.push_back(medium);
  }
  EXPECT_FALSE(media.empty()) << prefix;
  return media;
}

// Fails where a value differs by more than `most` levels, or more than `share` of them differ.
void ExpectLevels(const std::vector<uint8_t>& found, const std::vector<uint8_t>& golden, int most,
                  double share) {
  ASSERT_EQ(found.size(), golden.size());
  size_t differing = 0;
  int largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    differing += found[i] != golden[i] ? 1 : 0;
    largest = std::max(largest, std::abs(int{found[i]} - golden[i]));
  }
  EXPECT_LE(largest, most);
  EXPECT_LE(static_cast<double>(differing), share * static_cast<double>(found.size()));
}

TEST(TinyMedia, PicturesAreDecodedAndResized) {
  for (const std::string prefix : {"e2b", "unified", "dense"}) {
    for (const Json& medium : MediaOf(prefix, "image")) {
      const std::string name = medium["file"];
      SCOPED_TRACE(prefix + " " + name);
      const auto bytes = ReadGolden<char>(name);
      const auto picture = DecodePicture(std::as_bytes(std::span(bytes)));
      ASSERT_TRUE(picture.has_value()) << picture.error().message;
      EXPECT_EQ(picture->width, medium["oriented_size"][0]);
      EXPECT_EQ(picture->height, medium["oriented_size"][1]);
      const bool jpeg = name.ends_with(".jpg");
      if (medium.contains("decoded")) {
        const auto decoded = ReadGolden<uint8_t>(medium["decoded"]);
        ExpectLevels(picture->rgb, decoded, jpeg ? 6 : 0, jpeg ? 1.0 : 0.0);
      }
      const uint32_t side = prefix == "unified" ? 24 : 48;
      const auto grid = FitToBudget(picture->width, picture->height, medium["budget"], side);
      ASSERT_TRUE(grid.has_value()) << grid.error().message;
      EXPECT_EQ(grid->columns * side, medium["size"][0]);
      EXPECT_EQ(grid->rows * side, medium["size"][1]);
      EXPECT_EQ(grid->tokens(), medium["tokens"]);
      if (!medium.contains("rgb")) continue;
      const Picture resized = ResizeBicubic(*picture, grid->columns * side, grid->rows * side);
      const auto rgb = ReadGolden<uint8_t>(medium["rgb"]);
      ExpectLevels(resized.rgb, rgb, jpeg ? 6 : 2, jpeg ? 1.0 : 0.01);
    }
  }
}

TEST(TinyMedia, SoundIsDecodedAndTransformed) {
  for (const Json& medium : MediaOf("e2b", "audio")) {
    SCOPED_TRACE(medium["name"].get<std::string>());
    const auto bytes = ReadGolden<char>(medium["file"]);
    const auto samples = DecodeSound(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(samples.has_value()) << samples.error().message;
    EXPECT_EQ(samples->size(), medium["samples_16k"]);
    std::vector<float> golden = *samples;
    if (medium.contains("samples")) {
      golden = ReadGolden<float>(medium["samples"]);
      ASSERT_EQ(samples->size(), golden.size());
      double difference = 0;
      double norm = 0;
      for (size_t i = 0; i < golden.size(); ++i) {
        difference += std::pow(double{(*samples)[i]} - golden[i], 2);
        norm += std::pow(golden[i], 2);
      }
      // The README gives 5e-2 for the soft tokens of two good resamplers.
      EXPECT_LT(std::sqrt(difference / norm), 5e-2);
    }
    const std::vector<float> mel = LogMel(golden);
    const auto expected = ReadGolden<float>(medium["mel"]);
    ASSERT_EQ(mel.size(), expected.size());
    for (size_t i = 0; i < mel.size(); ++i) ASSERT_NEAR(mel[i], expected[i], 1e-3) << i;
  }
}

}  // namespace
}  // namespace rullama
