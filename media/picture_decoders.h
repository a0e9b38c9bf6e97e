// The decoders of DecodePicture, one for each format, and their common parts.
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
  uint64_t extra_bytes = 0;      // that the decoder needs in addition to the samples
  std::vector<uint8_t> samples;  // [height, width, channels]
};

// How far a file is read: up to the size of its picture, or whole.
enum class ReadDepth : uint8_t { kHeader, kPixels };

using PictureDecoder = Result<StoredPicture>(Bytes file, const PictureLimits& limits,
                                             ReadDepth depth);
[[nodiscard]] PictureDecoder DecodeJpeg;
[[nodiscard]] PictureDecoder DecodePng;
[[nodiscard]] PictureDecoder DecodeWebp;
[[nodiscard]] PictureDecoder DecodeGif;
[[nodiscard]] PictureDecoder DecodeBmp;
[[nodiscard]] PictureDecoder DecodeHeif;

// Errors: media.damaged for a side of 0, media.too_large.
[[nodiscard]] Status CheckPixels(uint64_t width, uint64_t height, const PictureLimits& limits);

// Checks the size and sets that of `picture`.
[[nodiscard]] Status SetSize(StoredPicture& picture, uint64_t width, uint64_t height,
                             uint32_t channels, const PictureLimits& limits);

// Makes room for the samples of a picture whose size is set. They are 0.
void Allocate(StoredPicture& picture);

// Error run.cancelled.
[[nodiscard]] tl::unexpected<Error> DecodingStopped();

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
