// Pictures: files of JPEG, PNG, WebP and GIF (the first frame) as 8-bit RGB, upright.
//
// The EXIF orientation is applied, transparent pixels are blended with white, and of channels of 16
// bits the high byte is kept. No profile or gamma is applied.
//
// Thread safety: pure functions.
// Memory: at most a few times the pixels, whose number is known and checked before any is decoded.
// Errors, all of kind kUsage except the last:
//   media.format     another format, or a kind of JPEG that is not decoded (CMYK)
//   media.damaged    a file that ends early or holds what its format forbids
//   media.too_large  more pixels than the limit
//   media.memory     (kOutOfMemory) the pixels do not fit into memory
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace rullama {

struct Picture {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  bool operator==(const Picture&) const = default;
};

struct PictureLimits {
  uint64_t max_pixels = 64'000'000;
};

// Decodes `file`, the bytes of a whole file.
[[nodiscard]] Result<Picture> DecodePicture(std::span<const std::byte> file,
                                            const PictureLimits& limits = {});

}  // namespace rullama
