// PNG with libpng: every colour type and depth, interlaced or not; of an animation the picture that
// programs without animations show.
//
// The library reports errors by a function that must not return. It jumps back into ReadHeader or
// ReadRows, over frames of the library and over our callbacks, none of which has a destructor to
// run.
#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stop_token>

#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

struct PngReader {
  PngReader(Bytes bytes, const std::stop_token& stopped) : file(bytes), stop(stopped) {}
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }

  png_structp png = nullptr;
  png_infop info = nullptr;
  Bytes file;
  size_t at = 0;                // of the next byte to be read
  const std::stop_token& stop;  // looked at before each row
  std::jmp_buf failed{};
  char message[128] = "";
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader->message, sizeof(reader->message), "%s", message);
  std::longjmp(reader->failed, 1);
}

// Warnings are about chunks that do not change the pixels.
void OnWarning(png_structp /*png*/, png_const_charp /*message*/) {}

void OnRead(png_structp png, png_bytep to, size_t size) {
  auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (reader->file.size() - reader->at < size) png_error(png, "the file ends too early");
  std::memcpy(to, reader->file.data() + reader->at, size);
  reader->at += size;
}

// Asks for 8 bits a channel and three channels, or four where something is transparent.
void RequestRgb(png_structp png, png_infop info) {
  const auto colour = png_get_color_type(png, info);
  if (png_get_bit_depth(png, info) == 16) png_set_strip_16(png);
  png_set_expand(png);
  if ((colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
}

bool ReadHeader(PngReader& reader) {
  if (setjmp(reader.failed) != 0) return false;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, OnError, OnWarning);
  if (reader.png == nullptr) return false;
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) return false;
  png_set_user_limits(reader.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // CheckPixels() has them
  png_set_read_fn(reader.png, &reader, OnRead);
  png_read_info(reader.png, reader.info);
  RequestRgb(reader.png, reader.info);
  return true;
}

// Writes [height, width, channels] to `rows`. An interlaced file comes in several passes, each of
// which fills more pixels of the rows.
bool ReadRows(PngReader& reader, uint8_t* rows, size_t height) {
  if (setjmp(reader.failed) != 0) return false;
  const size_t stride = png_get_rowbytes(reader.png, reader.info);
  const int passes = png_get_interlace_type(reader.png, reader.info) == PNG_INTERLACE_ADAM7
                         ? PNG_INTERLACE_ADAM7_PASSES
                         : 1;
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < height; ++y) {
      if (reader.stop.stop_requested()) return false;
      png_read_row(reader.png, rows + y * stride, nullptr);
    }
  }
  png_read_end(reader.png, reader.info);
  return true;
}

// Prepares the rows for the transformations that were asked for.
bool StartRows(PngReader& reader) {
  if (setjmp(reader.failed) != 0) return false;
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return true;
}

int OrientationOfChunk(const PngReader& reader) {
  png_uint_32 size = 0;
  png_bytep block = nullptr;
  if (png_get_eXIf_1(reader.png, reader.info, &size, &block) == 0) return 1;
  return ExifOrientation({block, size});
}

}  // namespace

Result<StoredPicture> DecodePng(Bytes file, const PictureLimits& limits, ReadDepth depth) {
  PngReader reader(file, limits.stop);
  if (!ReadHeader(reader)) return DamagedPicture("PNG", reader.message);
  const uint32_t width = png_get_image_width(reader.png, reader.info);
  const uint32_t height = png_get_image_height(reader.png, reader.info);
  StoredPicture picture;
  // libpng allocates rows in StartRows, so the limit is checked before.
  RL_RETURN_IF_ERROR(CheckPixels(width, height, limits));
  if (!StartRows(reader)) return DamagedPicture("PNG", reader.message);
  RL_RETURN_IF_ERROR(
      SetSize(picture, width, height, png_get_channels(reader.png, reader.info), limits));
  if (depth == ReadDepth::kHeader) return picture;
  Allocate(picture);
  if (!ReadRows(reader, picture.samples.data(), height)) {
    if (limits.stop.stop_requested()) return DecodingStopped();
    return DamagedPicture("PNG", reader.message);
  }
  picture.orientation = OrientationOfChunk(reader);
  return picture;
}

}  // namespace rullama::media_internal
