#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "media/sound.h"

namespace rullama {
namespace {

using testing::ElementsAreArray;

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// A WAV file of 32-bit floats, with a chunk between the format and the samples.
std::string Wav(const std::vector<float>& samples, uint16_t channels = 1,
                uint32_t rate = kSoundRate) {
  const auto bytes = static_cast<uint32_t>(samples.size() * sizeof(float));
  const auto frame = static_cast<uint16_t>(channels * sizeof(float));
  std::string file = "RIFF" + Bytes<uint32_t>(bytes + 48) + "WAVE";
  file += "fmt " + Bytes<uint32_t>(16) + Bytes<uint16_t>(3) + Bytes(channels) + Bytes(rate) +
          Bytes(rate * frame) + Bytes(frame) + Bytes<uint16_t>(32);
  file += "LIST" + Bytes<uint32_t>(3) + std::string("abc\0", 4);
  file += "data" + Bytes(bytes);
  file.append(reinterpret_cast<const char*>(samples.data()), bytes);
  return file;
}

std::span<const std::byte> View(const std::string& file) { return std::as_bytes(std::span(file)); }

std::string ErrorOf(const std::string& file, const SoundLimits& limits = {}) {
  const auto samples = DecodeSound(View(file), limits);
  return samples ? "none" : samples.error().id;
}

std::vector<float> Ramp(size_t count) {
  std::vector<float> samples(count);
  for (size_t i = 0; i < count; ++i) samples[i] = static_cast<float>(i) * 0.001F;
  return samples;
}

TEST(PlainSound, GivesTheSamplesThatTheFileHas) {
  const std::vector<float> samples = Ramp(kMinSoundSamples);
  const std::string file = Wav(samples);
  const auto decoded = DecodeSound(View(file));
  ASSERT_TRUE(decoded) << decoded.error().ToString();
  EXPECT_THAT(*decoded, ElementsAreArray(samples));
  EXPECT_EQ(SoundSamplesOfHeader(View(file)), samples.size());
}

TEST(PlainSound, RefusesOtherFormats) {
  const std::vector<float> samples = Ramp(1000);
  EXPECT_EQ(ErrorOf(Wav(samples, 2)), "media.format");
  EXPECT_EQ(ErrorOf(Wav(samples, 1, 44'100)), "media.format");
  EXPECT_EQ(ErrorOf("fLaC"), "media.format");
  EXPECT_EQ(ErrorOf(""), "media.format");
  EXPECT_EQ(SoundSamplesOfHeader(View("fLaC")), std::nullopt);
}

TEST(PlainSound, RefusesWhatEndsEarlyAnywhere) {
  const std::string file = Wav(Ramp(1000));
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(ErrorOf(file.substr(0, size)), "none") << size << " bytes";
  }
}

TEST(PlainSound, KeepsTheLimits) {
  EXPECT_EQ(ErrorOf(Wav(Ramp(kMinSoundSamples - 1))), "media.too_short");
  EXPECT_EQ(ErrorOf(Wav(Ramp(2 * kSoundRate)), {.max_seconds = 1}), "media.too_large");
  std::vector<float> samples = Ramp(1000);
  samples[999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ErrorOf(Wav(samples)), "media.samples");
}

}  // namespace
}  // namespace rullama
