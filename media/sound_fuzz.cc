// Any bytes give finite samples within the limits, or an error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "media/sound.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rullama::SoundLimits limits;
  limits.max_seconds = 10;
  const auto sound = rullama::DecodeSound(std::as_bytes(std::span(data, size)), limits);
  if (!sound) {
    RL_CHECK(sound.error().id.starts_with("media.") && !sound.error().message.empty());
    return 0;
  }
  RL_CHECK(sound->size() >= rullama::kMinSoundSamples);
  RL_CHECK(sound->size() <= size_t{limits.max_seconds} * rullama::kSoundRate + 1);
  for (const float sample : *sound) RL_CHECK(std::isfinite(sample));
  return 0;
}
