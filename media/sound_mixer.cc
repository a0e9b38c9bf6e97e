#include "media/sound_mixer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/printable.h"

namespace rullama::media_internal {

tl::unexpected<Error> DamagedSound(std::string_view why) {
  return MakeError(ErrorKind::kUsage, "media.damaged",
                   "the sound cannot be decoded ({}); the file is incomplete or damaged",
                   ShownName(why));
}

Result<SoundMixer> SoundMixer::Create(long rate, int channels, const SoundLimits& limits) {
  if (rate < long{limits.min_rate} || rate > long{limits.max_rate}) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the sound has {} samples a second, expected {} to {}; convert it", rate,
                     limits.min_rate, limits.max_rate);
  }
  if (channels < 1 || std::cmp_greater(channels, limits.max_channels)) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the sound has {} channels, expected 1 to {}; convert it", channels,
                     limits.max_channels);
  }
  SoundMixer mixer(static_cast<uint32_t>(rate), static_cast<size_t>(channels), limits);
  if (std::cmp_not_equal(rate, kSoundRate)) {
    RL_ASSIGN_OR_RETURN(mixer.resampler_,
                        Resampler::Create(static_cast<uint32_t>(rate), kSoundRate));
  }
  return mixer;
}

Status SoundMixer::CheckLength(uint64_t frames) const {
  if (frames <= most_) return OkStatus();
  return MakeError(ErrorKind::kUsage, "media.too_large",
                   "the sound lasts more than {} seconds, expected at most that; cut it",
                   max_seconds_);
}

Status SoundMixer::Take(std::span<const float> block) {
  if (stop_.stop_requested()) {
    return MakeError(ErrorKind::kRuntime, "run.cancelled", "decoding was told to stop");
  }
  const size_t frames = block.size() / channels_;
  RL_RETURN_IF_ERROR(CheckLength(taken_ + frames));
  mono_.resize(frames);
  for (size_t i = 0; i < frames; ++i) {
    float sum = 0.0F;
    for (size_t c = 0; c < channels_; ++c) sum += block[i * channels_ + c];
    if (!std::isfinite(sum)) {
      return MakeError(ErrorKind::kUsage, "media.samples",
                       "sample {} of the sound is infinite or not a number, expected finite "
                       "samples; convert the sound",
                       taken_ + i);
    }
    mono_[i] = sum / static_cast<float>(channels_);
  }
  taken_ += frames;
  if (resampler_) return resampler_->Process(mono_, samples_);
  samples_.insert(samples_.end(), mono_.begin(), mono_.end());
  return OkStatus();
}

Result<std::vector<float>> SoundMixer::Finish() && {
  if (resampler_) RL_RETURN_IF_ERROR(resampler_->Finish(samples_));
  return std::move(samples_);
}

}  // namespace rullama::media_internal
