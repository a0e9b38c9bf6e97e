// The pictures and sounds of a prompt. Value types.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/media_kind.h"
#include "media/media_hash.h"
#include "media/picture.h"

namespace rullama {

// A medium that was decoded and has yet to be encoded.
struct DecodedMedium {
  MediaKind kind = MediaKind::kPicture;
  Picture picture = {};
  uint32_t image_tokens = 0;        // of a picture: its budget
  std::vector<float> samples = {};  // of a sound, at kSoundRate
  MediaHash hash = {};
  int64_t tokens = 0;  // soft tokens that it gives
};

// A medium at rows [first, end()) of a prompt.
struct PlacedMedium {
  int64_t first = 0;
  std::shared_ptr<const DecodedMedium> medium;

  [[nodiscard]] int64_t end() const { return first + medium->tokens; }
};

}  // namespace rullama
