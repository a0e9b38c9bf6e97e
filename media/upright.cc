// From the pixels of a file to the picture that people see: blending with white, and the
// orientation.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

constexpr size_t kRgb = 3;

// Where the pixel (x, y) of the upright picture comes from in a stored picture: the upright
// coordinates swapped, if `swap`, then each counted from the far end, if told so.
struct Turn {
  bool swap;
  bool from_right;
  bool from_bottom;
};
// By orientation, of which 0 does not exist.
constexpr Turn kTurns[] = {
    {false, false, false}, {false, false, false}, {false, true, false},
    {false, true, true},   {false, false, true},  {true, false, false},
    {true, false, true},   {true, true, true},    {true, true, false},
};

}  // namespace

void BlendWithWhite(StoredPicture& picture) {
  constexpr uint32_t kWhite = 255;
  constexpr size_t kRgba = 4;
  if (picture.channels != kRgba) return;
  const size_t pixels = picture.samples.size() / kRgba;
  uint8_t* const samples = picture.samples.data();
  for (size_t i = 0; i < pixels; ++i) {  // in place: a pixel is written before the next is read
    const uint32_t alpha = samples[i * kRgba + kRgb];
    for (size_t c = 0; c < kRgb; ++c) {
      const uint32_t sum = samples[i * kRgba + c] * alpha + kWhite * (kWhite - alpha);
      samples[i * kRgb + c] = static_cast<uint8_t>((sum + kWhite / 2) / kWhite);
    }
  }
  picture.samples.resize(pixels * kRgb);
  picture.channels = kRgb;
}

Picture Upright(StoredPicture picture) {
  if (picture.orientation == 1) {
    return {picture.width, picture.height, std::move(picture.samples)};
  }
  const Turn turn = kTurns[picture.orientation];
  Picture upright{picture.width, picture.height, {}};
  if (turn.swap) std::swap(upright.width, upright.height);
  upright.rgb.resize(picture.samples.size());
  uint8_t* to = upright.rgb.data();
  for (uint32_t y = 0; y < upright.height; ++y) {
    for (uint32_t x = 0; x < upright.width; ++x, to += kRgb) {
      const uint32_t column = turn.swap ? y : x;
      const uint32_t row = turn.swap ? x : y;
      const size_t from_x = turn.from_right ? picture.width - 1 - column : column;
      const size_t from_y = turn.from_bottom ? picture.height - 1 - row : row;
      std::memcpy(to, &picture.samples[(from_y * picture.width + from_x) * kRgb], kRgb);
    }
  }
  return upright;
}

}  // namespace rullama::media_internal
