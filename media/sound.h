// Sound: files of WAV, FLAC, Ogg and MP3 as samples of one channel at 16 kHz, and the pieces and
// frames of them that models hear.
//
// Channels are averaged, and another rate is resampled with soxr's best quality. Samples of fixed
// point are scaled to [-1, 1); others are taken as they are, not clipped.
//
// Thread safety: pure functions.
// Errors, all of kind kUsage except the last two:
//   media.format     another format
//   media.damaged    a file that ends early or holds what its format forbids
//   media.too_large  more seconds, channels or a higher or lower rate than the limits
//   media.too_short  fewer samples than give one token
//   media.samples    a sample that is infinite or not a number
//   media.memory     (kOutOfMemory) the samples do not fit into memory
//   run.cancelled    (kRuntime) decoding was told to stop
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/base/status.h"

namespace rullama {

inline constexpr uint32_t kSoundRate = 16'000;     // samples a second that models hear
inline constexpr size_t kMaxSoundPiece = 480'000;  // 30 s, the longest that a model takes at once
inline constexpr size_t kMinSoundSamples = 161;    // fewer give no token
inline constexpr uint32_t kSoundFrame = 640;       // samples of a token without a tower

inline constexpr uint32_t kMaxSoundSeconds = 1800;

struct SoundLimits {
  uint32_t max_seconds = kMaxSoundSeconds;
  uint32_t max_channels = 8;
  uint32_t min_rate = 1'000;
  uint32_t max_rate = 384'000;
  // Decoding ends early once there are more samples than these at kSoundRate; the rest of the file
  // is not looked at.
  size_t enough_samples = std::numeric_limits<size_t>::max();
  std::stop_token stop = {};  // looked at between blocks of a few thousand frames
};

// The samples at kSoundRate that the header of `file` tells, about; nothing if only decoding tells,
// as for MP3 and Ogg, or if the header is wrong. Decodes nothing.
[[nodiscard]] std::optional<uint64_t> SoundSamplesOfHeader(std::span<const std::byte> file);

// Decodes `file`, the bytes of a whole file. Returns at least kMinSoundSamples samples.
[[nodiscard]] Result<std::vector<float>> DecodeSound(std::span<const std::byte> file,
                                                     const SoundLimits& limits = {});

// `samples` in pieces of kMaxSoundPiece, which are encoded one after another. A rest too short for
// a token is left out.
[[nodiscard]] std::vector<std::span<const float>> SoundPieces(std::span<const float> samples);

// [ceil(samples / kSoundFrame), kSoundFrame], the last frame filled up with zeros: what a model
// without an audio tower reads.
[[nodiscard]] std::vector<float> SoundFrames(std::span<const float> samples);

}  // namespace rullama
