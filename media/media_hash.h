// Hashes of pictures and sounds, for prefix caches: two prompts with equal tokens and equal hashes
// of their media are the same prompt.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "media/picture.h"

namespace rullama {

struct MediaHash {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const MediaHash&) const = default;
};

// The hash of the pixels, the size and the number of image tokens.
[[nodiscard]] MediaHash HashPicture(const Picture& picture, uint32_t image_tokens);
// The hash of samples at 16 kHz.
[[nodiscard]] MediaHash HashSound(std::span<const float> samples);

}  // namespace rullama
