// GIF with giflib: the first frame, on a transparent canvas of the size that the file names.
#include <gif_lib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

struct Close {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, Close>;

int ReadBytes(GifFileType* gif, GifByteType* to, int size) {
  auto* const rest = static_cast<Bytes*>(gif->UserData);
  const size_t count = std::min(rest->size(), static_cast<size_t>(std::max(size, 0)));
  if (count != 0) std::memcpy(to, rest->data(), count);
  *rest = rest->subspan(count);
  return static_cast<int>(count);
}

tl::unexpected<Error> DamagedGif(const GifFileType& gif) {
  const char* const why = GifErrorString(gif.Error);
  return DamagedPicture("GIF", why != nullptr ? why : "its structure is not valid");
}

// Reads an extension and, if it is the one about transparency, sets `transparent` to the index of
// the transparent colour, or to NO_TRANSPARENT_COLOR.
bool ReadExtension(GifFileType* gif, int& transparent) {
  int code = 0;
  GifByteType* block = nullptr;  // one byte of length, then its bytes
  if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return false;
  while (block != nullptr) {
    GraphicsControlBlock control{};
    if (code == GRAPHICS_EXT_FUNC_CODE &&
        DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
      transparent = control.TransparentColor;
    }
    if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return false;
  }
  return true;
}

// Reads up to the description of the first frame. False if there is none.
bool FindFirstFrame(GifFileType* gif, int& transparent) {
  while (true) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &type) == GIF_ERROR) return false;
    if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
    if (type != EXTENSION_RECORD_TYPE || !ReadExtension(gif, transparent)) return false;
  }
}

// The rows of a frame in the order in which the file has them.
std::vector<int> RowOrder(int height, bool interlaced) {
  struct Pass {
    int first;
    int step;
  };
  constexpr Pass kInterlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  constexpr Pass kPlain[] = {{0, 1}};
  std::vector<int> rows;
  rows.reserve(static_cast<size_t>(height));
  const auto append = [&](const Pass& pass) {
    for (int y = pass.first; y < height; y += pass.step) rows.push_back(y);
  };
  if (interlaced) {
    for (const Pass& pass : kInterlaced) append(pass);
  } else {
    for (const Pass& pass : kPlain) append(pass);
  }
  return rows;
}

// Draws row `y` of the frame, given as indices of colours, where it lies on the canvas. False if an
// index has no colour.
bool DrawRow(const GifImageDesc& frame, const ColorMapObject& colours, int transparent,
             const std::vector<GifPixelType>& indices, int y, StoredPicture& picture) {
  constexpr uint8_t kOpaque = 255;
  const int64_t canvas_y = int64_t{frame.Top} + y;
  for (int x = 0; x < frame.Width; ++x) {
    const int index = indices[static_cast<size_t>(x)];
    if (index == transparent) continue;
    if (index >= colours.ColorCount) return false;
    const int64_t canvas_x = int64_t{frame.Left} + x;
    if (canvas_x >= picture.width || canvas_y >= picture.height) continue;
    const GifColorType& colour = colours.Colors[index];
    const auto pixel = static_cast<size_t>(canvas_y * picture.width + canvas_x);
    uint8_t* const to = &picture.samples[pixel * 4];
    to[0] = colour.Red;
    to[1] = colour.Green;
    to[2] = colour.Blue;
    to[3] = kOpaque;
  }
  return true;
}

}  // namespace

Result<StoredPicture> DecodeGif(Bytes file, const PictureLimits& limits, ReadDepth depth) {
  Bytes rest = file;
  int error = 0;
  const Gif gif(DGifOpen(&rest, ReadBytes, &error));
  if (!gif) {
    const char* const why = GifErrorString(error);
    return DamagedPicture("GIF", why != nullptr ? why : "its header is not valid");
  }
  StoredPicture picture;
  RL_RETURN_IF_ERROR(SetSize(picture, static_cast<uint64_t>(gif->SWidth),
                             static_cast<uint64_t>(gif->SHeight), 4, limits));
  if (depth == ReadDepth::kHeader) return picture;
  Allocate(picture);
  int transparent = NO_TRANSPARENT_COLOR;
  if (!FindFirstFrame(gif.get(), transparent)) return DamagedGif(*gif);
  const GifImageDesc& frame = gif->Image;
  RL_RETURN_IF_ERROR(
      CheckPixels(static_cast<uint64_t>(frame.Width), static_cast<uint64_t>(frame.Height), limits));
  const ColorMapObject* const colours = frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap;
  if (colours == nullptr) return DamagedPicture("GIF", "it has no table of colours");
  std::vector<GifPixelType> indices(static_cast<size_t>(frame.Width));
  for (const int y : RowOrder(frame.Height, frame.Interlace)) {
    if (limits.stop.stop_requested()) return DecodingStopped();
    if (DGifGetLine(gif.get(), indices.data(), frame.Width) == GIF_ERROR) return DamagedGif(*gif);
    if (!DrawRow(frame, *colours, transparent, indices, y, picture)) {
      return DamagedPicture("GIF", "a pixel has an index beyond the table of colours");
    }
  }
  return picture;
}

}  // namespace rullama::media_internal
