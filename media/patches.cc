#include "media/patches.h"

#include <cstddef>

#include "core/base/check.h"

namespace rullama {
namespace {

constexpr uint32_t kColours = 3;

// Appends the pixels of the patch at column `x` and row `y` of the grid.
void AppendPatch(const Picture& picture, uint32_t patch, uint32_t x, uint32_t y,
                 PicturePatches& patches) {
  constexpr float kLargest = 255.0F;
  for (uint32_t c = 0; c < kColours; ++c) {
    for (uint32_t row = 0; row < patch; ++row) {
      const size_t first = (size_t{y} * patch + row) * picture.width + size_t{x} * patch;
      for (uint32_t column = 0; column < patch; ++column) {
        patches.values.push_back(picture.rgb[(first + column) * kColours + c] / kLargest);
      }
    }
  }
  patches.x.push_back(static_cast<int32_t>(x));
  patches.y.push_back(static_cast<int32_t>(y));
}

}  // namespace

PicturePatches CutPatches(const Picture& picture, uint32_t patch, uint32_t pool) {
  const uint32_t side = patch * pool;
  RL_CHECK(side > 0 && picture.width % side == 0 && picture.height % side == 0);
  const size_t count = size_t{picture.width / patch} * (picture.height / patch);
  PicturePatches patches;
  patches.width = kColours * patch * patch;
  patches.values.reserve(count * patches.width);
  patches.x.reserve(count);
  patches.y.reserve(count);
  for (uint32_t square_y = 0; square_y < picture.height / patch; square_y += pool) {
    for (uint32_t square_x = 0; square_x < picture.width / patch; square_x += pool) {
      for (uint32_t i = 0; i < pool * pool; ++i) {
        AppendPatch(picture, patch, square_x + i % pool, square_y + i / pool, patches);
      }
    }
  }
  return patches;
}

}  // namespace rullama
