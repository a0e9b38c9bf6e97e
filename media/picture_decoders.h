// The decoders behind DecodePicture, one for each format, and what they share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "media/picture.h"

namespace rullama::media_internal {

using Bytes = std::span<const uint8_t>;

// A picture as its file stores it.
struct StoredPicture {
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t channels = 3;         // 3: RGB, 4: RGBA with alpha not premultiplied
  int orientation = 1;           // of EXIF, 1 to 8
  std::vector<uint8_t> samples;  // [height, width, channels]
};

using PictureDecoder = Result<StoredPicture>(Bytes file, const PictureLimits& limits);
[[nodiscard]] PictureDecoder DecodeJpeg;
[[nodiscard]] PictureDecoder DecodePng;
[[nodiscard]] PictureDecoder DecodeWebp;
[[nodiscard]] PictureDecoder DecodeGif;

// Errors: media.damaged for a side of 0, media.too_large.
[[nodiscard]] Status CheckPixels(uint64_t width, uint64_t height, const PictureLimits& limits);

// Checks the size, sets that of `picture`, and makes room for its samples, which are 0.
[[nodiscard]] Status Allocate(StoredPicture& picture, uint64_t width, uint64_t height,
                              uint32_t channels, const PictureLimits& limits);

// Error media.damaged of a file of `format`; `why` is the decoder's word for it.
[[nodiscard]] tl::unexpected<Error> DamagedPicture(std::string_view format, std::string_view why);

// The orientation (1 to 8) that a block of EXIF gives to its picture; 1 if it gives none, or is
// damaged. The block begins with the header of TIFF, before which "Exif\0\0" may stand.
[[nodiscard]] int ExifOrientation(Bytes block);

// Blends RGBA with white. Pictures of three channels stay as they are.
void BlendWithWhite(StoredPicture& picture);

// Turns and mirrors a picture of three channels as its orientation says.
[[nodiscard]] Picture Upright(StoredPicture picture);

}  // namespace rullama::media_internal
