// Pictures: files of JPEG, PNG, WebP, GIF (the first frame) and BMP as 8-bit RGB, upright; in
// builds with libheif also HEIC and AVIF.
//
// The EXIF orientation is applied, transparent pixels are blended with white, and of channels of 16
// bits the high byte is kept. No profile or gamma is applied; the inks of a CMYK JPEG are those of
// a screen.
//
// Thread safety: pure functions.
// Memory: PictureHeader::decoding_bytes, which are known and checked before any pixel is decoded.
// Errors, all of kind kUsage except the last two:
//   media.format     another format, or a kind of BMP (run lengths) or HEIF that is not decoded
//   media.damaged    a file that ends early or holds what its format forbids
//   media.too_large  more pixels than the limit, or a longer side
//   media.memory     (kOutOfMemory) the pixels do not fit into memory
//   run.cancelled    (kRuntime) decoding was told to stop
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
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
  uint32_t max_side = 65'535;  // as in JPEG and GIF; decoders and resampling keep whole rows
  // Looked at between rows; files of WebP, HEIC and AVIF are decoded without a look.
  std::stop_token stop = {};
};

// What the header of a file says.
struct PictureHeader {
  uint32_t width = 0;  // as stored: the orientation may swap the sides
  uint32_t height = 0;
  uint64_t decoding_bytes = 0;  // of host memory that decoding takes at most, as far as it grows
};

// Reads the header of `file`, the bytes of a whole file. Allocates no pixels.
[[nodiscard]] Result<PictureHeader> ReadPictureHeader(std::span<const std::byte> file,
                                                      const PictureLimits& limits = {});

// Decodes `file`, the bytes of a whole file.
[[nodiscard]] Result<Picture> DecodePicture(std::span<const std::byte> file,
                                            const PictureLimits& limits = {});

}  // namespace rullama
