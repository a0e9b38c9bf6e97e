#include "media/sound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sndfile.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <stop_token>
#include <string_view>
#include <vector>

#include "media/encoders_test_util.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

constexpr int kWav16 = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
constexpr int kWavFloat = SF_FORMAT_WAV | SF_FORMAT_FLOAT;

// Half a second of a tone of 500 Hz.
std::vector<float> Tone(int rate, int channels = 1) {
  std::vector<float> samples;
  for (int i = 0; i < rate / 2; ++i) {
    const double value = 0.5 * std::sin(2 * std::numbers::pi * 500 * i / rate);
    samples.insert(samples.end(), static_cast<size_t>(channels), static_cast<float>(value));
  }
  return samples;
}

Error ErrorOfSound(const FileBytes& file, const SoundLimits& limits = {}) {
  const auto sound = DecodeSound(file, limits);
  if (sound) {
    ADD_FAILURE() << "decoded";
    return {};
  }
  return sound.error();
}

// The greatest difference of `samples` from the tone, apart from the ends, where coders ring.
double DistanceFromTone(const std::vector<float>& samples, size_t shift = 0) {
  const std::vector<float> tone = Tone(kSoundRate);
  double distance = 0;
  for (size_t i = 400; i + 400 < tone.size() && i + shift < samples.size(); ++i) {
    distance = std::max(distance, std::abs(double{samples[i + shift]} - tone[i]));
  }
  return distance;
}

TEST(Sound, OfSixteenBitsIsScaledExactly) {
  std::vector<float> samples(200, 0.0F);
  samples[0] = -1.0F;
  samples[1] = 0.5F;
  samples[2] = 1.0F / 32'768;
  const auto sound = DecodeSound(EncodeSound(kWav16, kSoundRate, 1, samples));
  ASSERT_TRUE(sound.has_value()) << sound.error().message;
  ASSERT_EQ(sound->size(), samples.size());
  // The writer scales by 32767 and rounds, the reader divides by 32768.
  EXPECT_NEAR((*sound)[0], -1.0F, 1.0 / 32'768);
  EXPECT_NEAR((*sound)[1], 0.5F, 1.0 / 32'768);
  EXPECT_EQ((*sound)[1] * 32'768, std::round((*sound)[1] * 32'768));
}

TEST(Sound, IsTheMeanOfItsChannels) {
  std::vector<float> samples;
  for (int i = 0; i < 200; ++i) samples.insert(samples.end(), {0.5F, -0.25F});
  const auto sound = DecodeSound(EncodeSound(kWavFloat, kSoundRate, 2, samples));
  ASSERT_TRUE(sound.has_value()) << sound.error().message;
  EXPECT_THAT(*sound, ::testing::Each(0.125F));
}

TEST(Sound, ComesFromEveryFormatAtEveryRate) {
  struct Case {
    int format;
    int rate;
    double tolerance;
  };
  const Case cases[] = {
      {kWav16, 16'000, 1e-4},
      {kWav16, 8'000, 1e-3},
      {kWavFloat, 48'000, 1e-4},
      {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 44'100, 1e-3},
      {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44'100, 5e-2},
      {SF_FORMAT_OGG | SF_FORMAT_OPUS, 48'000, 5e-2},
      {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44'100, 5e-2},
  };
  for (const Case& test : cases) {
    const auto sound = DecodeSound(EncodeSound(test.format, test.rate, 2, Tone(test.rate, 2)));
    ASSERT_TRUE(sound.has_value()) << std::hex << test.format << ": " << sound.error().message;
    EXPECT_NEAR(static_cast<double>(sound->size()), kSoundRate / 2, 1'000)
        << std::hex << test.format;
    EXPECT_LT(DistanceFromTone(*sound), test.tolerance) << std::hex << test.format;
  }
}

TEST(Sound, OfAnotherLengthThanItSaysIsRefused) {
  const FileBytes wav = EncodeSound(kWav16, 16'000, 1, Tone(16'000));
  const FileBytes flac = EncodeSound(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16'000, 1, Tone(16'000));
  const FileBytes mp3 =
      EncodeSound(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44'100, 1, Tone(44'100));
  for (const FileBytes& file : {wav, flac, mp3}) {
    for (const size_t size : {size_t{0}, size_t{3}, size_t{30}, file.size() / 2, file.size() - 5}) {
      const FileBytes cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
      EXPECT_FALSE(DecodeSound(cut).has_value()) << size;
    }
  }
}

// Writers to a pipe do not know the length.
TEST(Sound, OfUnknownLengthIsReadToItsEnd) {
  FileBytes wav = EncodeSound(kWav16, 16'000, 1, Tone(16'000));
  for (const size_t at : {size_t{4}, size_t{40}}) {
    for (size_t i = 0; i < 4; ++i) wav[at + i] = std::byte{0xFF};
  }
  const auto sound = DecodeSound(wav);
  ASSERT_TRUE(sound.has_value()) << sound.error().message;
  EXPECT_EQ(sound->size(), 8'000u);
}

// Programs that cannot seek in what they write leave the sizes as they are without samples.
TEST(Sound, WhoseSizeIsZeroIsReadToItsEnd) {
  const FileBytes whole = EncodeSound(kWav16, 16'000, 1, Tone(16'000));
  const auto with_sizes = [&whole](uint8_t riff, uint8_t data) {
    FileBytes wav = whole;
    for (size_t i = 0; i < 4; ++i) wav[4 + i] = wav[40 + i] = std::byte{0};
    wav[4] = std::byte{riff};
    wav[40] = std::byte{data};
    return wav;
  };
  for (const uint8_t riff : {0, 36}) {
    const auto sound = DecodeSound(with_sizes(riff, 0));
    ASSERT_TRUE(sound.has_value()) << sound.error().message;
    EXPECT_EQ(*sound, *DecodeSound(whole));
    EXPECT_EQ(SoundSamplesOfHeader(with_sizes(riff, 0)), 8'000u);
  }
  // Sound of no samples, which another chunk follows.
  EXPECT_EQ(ErrorOfSound(with_sizes(100, 0)).id, "media.too_short");
}

#ifdef __GLIBC__
// libsndfile 1.2 keeps what it has allocated for headers that are not whole. Sanitizers count by
// themselves, and their allocator tells nothing.
TEST(Sound, OfVorbisThatEndsInItsHeadersLeavesNothingBehind) {
  const FileBytes ogg = EncodeSound(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16'000, 1, Tone(16'000));
  const auto decode_all = [&ogg] {
    for (size_t size = 60; size < 3'000; size += 60) {
      const FileBytes cut(ogg.begin(), ogg.begin() + static_cast<ptrdiff_t>(size));
      EXPECT_EQ(ErrorOfSound(cut).id, "media.damaged") << size;
    }
    FileBytes wrong = ogg;
    wrong[120] ^= std::byte{1};
    EXPECT_EQ(ErrorOfSound(wrong).id, "media.damaged");
  };
  decode_all();
  const size_t before = ::mallinfo2().uordblks;
  for (int i = 0; i < 4; ++i) decode_all();
  EXPECT_LT(::mallinfo2().uordblks, before + 100'000);
}
#endif

TEST(Sound, EndsEarlyOnceThereIsEnough) {
  for (const int format : {kWav16, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III}) {
    const auto sound =
        DecodeSound(EncodeSound(format, 16'000, 1, Tone(16'000)), {.enough_samples = 1'000});
    ASSERT_TRUE(sound.has_value()) << sound.error().message;
    EXPECT_GT(sound->size(), 1'000u);
    EXPECT_LT(sound->size(), 8'000u);
  }
}

TEST(Sound, IsDecodedNoFurtherOnceToldToStop) {
  std::stop_source stop;
  stop.request_stop();
  const FileBytes file = EncodeSound(kWav16, 16'000, 1, Tone(16'000));
  EXPECT_EQ(ErrorOfSound(file, {.stop = stop.get_token()}).id, "run.cancelled");
}

TEST(Sound, HasAHeaderThatTellsItsLength) {
  constexpr int kFlac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
  EXPECT_EQ(SoundSamplesOfHeader(EncodeSound(kWav16, 8'000, 2, Tone(8'000, 2))), 8'000u);
  EXPECT_EQ(SoundSamplesOfHeader(EncodeSound(kFlac, 16'000, 1, Tone(16'000))), 8'000u);
  EXPECT_EQ(SoundSamplesOfHeader(FileBytes(10)), std::nullopt);
}

TEST(Sound, IsHeldToTheLimits) {
  const std::vector<float> tone = Tone(16'000);
  EXPECT_EQ(ErrorOfSound(EncodeSound(kWav16, 16'000, 1, std::vector<float>(160))).id,
            "media.too_short");
  EXPECT_EQ(ErrorOfSound(EncodeSound(kWav16, 1, 1, tone)).id, "media.too_large");
  EXPECT_EQ(ErrorOfSound(EncodeSound(kWav16, 400'000, 1, tone)).id, "media.too_large");
  EXPECT_EQ(ErrorOfSound(EncodeSound(kWav16, 16'000, 10, tone)).id, "media.too_large");
  SoundLimits limits;
  limits.max_seconds = 0;
  const Error error = ErrorOfSound(EncodeSound(kWav16, 16'000, 1, tone), limits);
  EXPECT_EQ(error.id, "media.too_large");
  EXPECT_THAT(error.message, HasSubstr("0 seconds"));
}

TEST(Sound, OfNumbersThatAreNoneIsRefused) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> samples(300, 0.0F);
    samples[200] = value;
    const Error error = ErrorOfSound(EncodeSound(kWavFloat, 16'000, 1, samples));
    EXPECT_EQ(error.id, "media.samples");
    EXPECT_THAT(error.message, HasSubstr("sample 200"));
  }
}

TEST(Sound, OfOtherFormatsIsRefusedByName) {
  using namespace std::string_view_literals;
  for (const auto& [text, name] :
       {std::pair{"\0\0\0\x20"
                  "ftypM4A "sv,
                  "M4A"sv},
        std::pair{"FORM\0\0\0\0AIFF"sv, "AIFF"sv}, std::pair{""sv, "empty"sv},
        std::pair{"\xFF\xF1\x50\x80"sv, "ff f1 50 80"sv}}) {
    const auto* const first = reinterpret_cast<const std::byte*>(text.data());
    const Error error = ErrorOfSound(FileBytes(first, first + text.size()));
    EXPECT_EQ(error.id, "media.format");
    EXPECT_THAT(error.message, HasSubstr(name));
  }
}

TEST(SoundPieces, AreThirtySecondsLong) {
  const std::vector<float> samples(kMaxSoundPiece + 200);
  const auto pieces = SoundPieces(samples);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].size(), kMaxSoundPiece);
  EXPECT_EQ(pieces[1].size(), 200u);
  EXPECT_EQ(SoundPieces(std::span(samples).first(kMaxSoundPiece + 160)).size(), 1u);
}

TEST(SoundFrames, AreFilledUp) {
  const std::vector<float> frames = SoundFrames(std::vector<float>(641, 1.0F));
  ASSERT_EQ(frames.size(), 1'280u);
  EXPECT_EQ(frames[640], 1.0F);
  EXPECT_EQ(frames[641], 0.0F);
}

}  // namespace
}  // namespace rullama
