#include "media/patches.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/check.h"

namespace rullama {
namespace {

constexpr uint32_t kColours = 3;

// Samples between 0 and 1.
std::array<float, 256> SampleValues() {
  constexpr float kLargest = 255.0F;
  std::array<float, 256> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / kLargest;
  return values;
}

// Writes the pixels of the patch at column `x` and row `y` of the grid, one colour after another.
void WritePatch(const Picture& picture, uint32_t patch, uint32_t x, uint32_t y, float* to) {
  static const std::array<float, 256> kValues = SampleValues();
  for (uint32_t c = 0; c < kColours; ++c) {
    for (uint32_t row = 0; row < patch; ++row) {
      const size_t first = (size_t{y} * patch + row) * picture.width + size_t{x} * patch;
      const uint8_t* from = picture.rgb.data() + first * kColours + c;
      for (uint32_t column = 0; column < patch; ++column) *to++ = kValues[from[column * kColours]];
    }
  }
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
        const uint32_t x = square_x + i % pool, y = square_y + i / pool;
        // Grows patch by patch, so that its zeros are still in the cache when they are replaced.
        const size_t written = patches.values.size();
        patches.values.resize(written + patches.width);
        WritePatch(picture, patch, x, y, patches.values.data() + written);
        patches.x.push_back(static_cast<int32_t>(x));
        patches.y.push_back(static_cast<int32_t>(y));
      }
    }
  }
  return patches;
}

}  // namespace rullama
