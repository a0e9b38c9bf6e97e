// Resampling of pictures, as Pillow's Image.resize does it.
//
// A picture is stretched to `width` x `height`, both > 0. Each pass (rows first) convolves with a
// kernel, widened by the factor of a reduction so that nothing aliases, in Pillow's fixed-point
// arithmetic, and rounds to 8 bits. Weights outside the picture are left out and the others
// normalised. An equal size returns the picture unchanged.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "media/picture.h"

namespace rullama {

// The cubic kernel of a = -0.5 (BICUBIC).
[[nodiscard]] Picture ResizeBicubic(const Picture& picture, uint32_t width, uint32_t height);
// The triangle of two pixels (BILINEAR).
[[nodiscard]] Picture ResizeBilinear(const Picture& picture, uint32_t width, uint32_t height);

}  // namespace rullama
