#include "media/log_mel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "media/sound.h"

namespace rullama {
namespace {

TEST(LogMel, HasAFrameEveryTenMilliseconds) {
  EXPECT_EQ(MelFrames(0), 0u);
  EXPECT_EQ(MelFrames(160), 0u);
  EXPECT_EQ(MelFrames(161), 1u);
  EXPECT_EQ(MelFrames(320), 1u);
  EXPECT_EQ(MelFrames(321), 2u);
  EXPECT_EQ(MelFrames(21'920), 136u);  // 1.37 s
  EXPECT_EQ(MelFrames(kMaxSoundPiece), 2'999u);
}

TEST(LogMel, OfSilenceIsTheFloor) {
  const std::vector<float> features = LogMel(std::vector<float>(kMinSoundSamples, 0.0F));
  ASSERT_EQ(features.size(), kMelBins);
  for (const float value : features) EXPECT_FLOAT_EQ(value, std::log(0.001F));
}

// A tone on bin 64 of the spectrum (2 kHz): the window of Hann gives half the number of samples
// times half the amplitude, 80, to that bin and less to others, and one filter has its top near it.
TEST(LogMel, OfAToneIsHighestAtItsFrequency) {
  std::vector<float> tone(1'600);
  for (size_t i = 0; i < tone.size(); ++i) {
    tone[i] = static_cast<float>(
        std::sin(2 * std::numbers::pi * 2'000 * static_cast<double>(i) / kSoundRate));
  }
  const std::vector<float> features = LogMel(tone);
  const size_t frame = 5;
  size_t top = 0;
  for (size_t m = 0; m < kMelBins; ++m) {
    if (features[frame * kMelBins + m] > features[frame * kMelBins + top]) top = m;
  }
  // mel(2 kHz) = 1521, of 2840 in steps of 22: the filters are numbered from 0 at the first corner.
  EXPECT_NEAR(static_cast<double>(top), 1521.4 / (2840.0 / 129) - 1, 1.0);
}

}  // namespace
}  // namespace rullama
