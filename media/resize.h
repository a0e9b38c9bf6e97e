// Bicubic resampling of pictures.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>

#include "media/picture.h"

namespace rullama {

// `picture` stretched to `width` x `height`, both > 0. Each pass (rows first) convolves with the
// cubic kernel of a = -0.5, widened by the factor of a reduction so that nothing aliases, in the
// fixed-point arithmetic of Pillow's Image.resize(BICUBIC), and rounds to 8 bits. Weights outside
// the picture are left out and the others normalised. An equal size returns the picture unchanged.
[[nodiscard]] Picture ResizeBicubic(const Picture& picture, uint32_t width, uint32_t height);

}  // namespace rullama
