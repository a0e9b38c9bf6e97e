// The pictures and sounds of a prompt. Value types.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/media_kind.h"
#include "engine/media/media_budget.h"
#include "media/media_hash.h"
#include "media/picture.h"
#include "media/sound.h"

namespace rullama {

// A medium that was decoded and has yet to be encoded.
struct DecodedMedium {
  MediaKind kind = MediaKind::kPicture;
  uint32_t width = 0;  // of the picture in the file, upright
  uint32_t height = 0;
  Picture scaled = {};              // as the tower sees it (PictureTower::Scale)
  uint32_t image_tokens = 0;        // of a picture: its budget
  std::vector<float> samples = {};  // of a sound, at kSoundRate
  MediaHash hash = {};
  int64_t tokens = 0;             // soft tokens that it gives
  MediaBudget::Part memory = {};  // what it takes of the budget, given back with it

  // Of a sound.
  [[nodiscard]] double seconds() const { return static_cast<double>(samples.size()) / kSoundRate; }
};

// A medium at rows [first, end()) of a prompt.
struct PlacedMedium {
  int64_t first = 0;
  std::shared_ptr<const DecodedMedium> medium;

  [[nodiscard]] int64_t end() const { return first + medium->tokens; }
};

}  // namespace rullama
