// What tells media apart: two prompts with equal tokens and equal hashes of their media are the
// same prompt to a cache.
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

// Of the pixels, the size and the number of image tokens.
[[nodiscard]] MediaHash HashPicture(const Picture& picture, uint32_t image_tokens);
// Of samples at 16 kHz.
[[nodiscard]] MediaHash HashSound(std::span<const float> samples);

}  // namespace rullama
