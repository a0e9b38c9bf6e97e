// Samples of a file on their way to models: its channels averaged, its rate converted, its limits
// kept. Internal to media. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "media/resampler.h"
#include "media/sound.h"

namespace rullama::media_internal {

// Error media.damaged; `why` may be foreign text.
tl::unexpected<Error> DamagedSound(std::string_view why);

// The reason for files that end early.
inline constexpr std::string_view kEndsInsideSamples = "it ends inside its samples";

class SoundMixer {
 public:
  // Errors: media.too_large, media.memory.
  static Result<SoundMixer> Create(long rate, int channels, const SoundLimits& limits);

  // Whether a file of `frames` frames is short enough. Error media.too_large.
  [[nodiscard]] Status CheckLength(uint64_t frames) const;
  // The next frames, interleaved: [frames, channels]. Errors: media.too_large, media.samples,
  // run.cancelled.
  Status Take(std::span<const float> block);
  // Whether nothing more needs to be taken (SoundLimits::enough_samples).
  [[nodiscard]] bool has_enough() const { return samples_.size() > enough_; }
  // Frames so far.
  [[nodiscard]] uint64_t taken() const { return taken_; }
  // The samples at kSoundRate.
  Result<std::vector<float>> Finish() &&;

 private:
  SoundMixer(uint32_t rate, size_t channels, const SoundLimits& limits)
      : channels_(channels),
        max_seconds_(limits.max_seconds),
        enough_(limits.enough_samples),
        stop_(limits.stop),
        most_(uint64_t{limits.max_seconds} * rate) {}

  size_t channels_;
  uint32_t max_seconds_;
  size_t enough_;
  std::stop_token stop_;
  uint64_t most_;       // frames
  uint64_t taken_ = 0;  // frames
  std::optional<Resampler> resampler_;
  std::vector<float> mono_;
  std::vector<float> samples_;
};

}  // namespace rullama::media_internal
