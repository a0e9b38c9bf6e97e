// The pixels of a picture as the rows that an image tower reads.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "media/picture.h"

namespace rullama {

struct PicturePatches {
  uint32_t width = 0;         // values of a patch: 3 * patch * patch
  std::vector<float> values;  // [count, width]: pixels / 255, ordered channel, row, column
  std::vector<int32_t> x;     // [count]: column of the patch in the grid of patches, from 0
  std::vector<int32_t> y;     // [count]: its row

  [[nodiscard]] size_t count() const { return x.size(); }
};

// Cuts a picture into squares of `patch` pixels. Squares of `pool` x `pool` patches stand together,
// row by row inside and from square to square, so that pooling takes the mean of consecutive rows.
// Both sides of the picture are multiples of patch * pool.
[[nodiscard]] PicturePatches CutPatches(const Picture& picture, uint32_t patch, uint32_t pool);

}  // namespace rullama
