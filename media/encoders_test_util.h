// Media files made from samples, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace rullama {

using FileBytes = std::vector<std::byte>;

// A block of EXIF that holds an orientation, big-endian, with another entry before it.
std::vector<uint8_t> ExifWithOrientation(uint8_t orientation);

struct PngOptions {
  int colour_type = 2;  // PNG_COLOR_TYPE_RGB
  int depth = 8;
  bool interlaced = false;
  uint8_t orientation = 0;                  // 0: no EXIF
  std::vector<uint8_t> palette = {};        // RGB
  std::vector<uint8_t> palette_alpha = {};  // tRNS of a palette
};
// `samples` has the rows as PNG stores them; 16 bits are big-endian.
FileBytes EncodePng(uint32_t width, uint32_t height, std::vector<uint8_t> samples,
                    const PngOptions& options = {});

struct JpegOptions {
  int components = 3;  // 1: grey, 3: RGB, 4: CMYK
  bool ycck = false;   // stores CMYK as YCCK
  bool adobe = true;   // the marker of Adobe, of CMYK
  bool progressive = false;
  uint8_t orientation = 0;  // 0: no EXIF
};
FileBytes EncodeJpeg(uint32_t width, uint32_t height, std::vector<uint8_t> samples,
                     const JpegOptions& options = {});

struct BmpOptions {
  uint32_t header = 40;               // bytes: 12, 40, 52, 56, 108 or 124
  uint32_t bits = 24;                 // of a pixel
  uint32_t compression = 0;           // 3 has masks
  bool top_down = false;              // the first row comes first
  std::vector<uint8_t> palette = {};  // RGB
  std::vector<uint32_t> masks = {};   // of red, green, blue and perhaps alpha
};
// `rows` has the bytes of each row, the uppermost first, without those that fill it up.
FileBytes EncodeBmp(uint32_t width, uint32_t height, std::span<const uint8_t> rows,
                    const BmpOptions& options = {});

// Lossless. RGBA.
FileBytes EncodeWebp(uint32_t width, uint32_t height, std::span<const uint8_t> samples);

struct GifOptions {
  bool interlaced = false;
  int transparent = -1;
  int frames = 1;  // those after the first are blank
};
// One byte of `indices` for each pixel, of up to four colours (RGB).
FileBytes EncodeGif(uint32_t width, uint32_t height, std::vector<uint8_t> indices,
                    std::span<const uint8_t> colours, const GifOptions& options = {});

// `format` is one of libsndfile, such as SF_FORMAT_WAV | SF_FORMAT_PCM_16. Samples are interleaved.
FileBytes EncodeSound(int format, int rate, int channels, std::span<const float> samples);

}  // namespace rullama
