#include "media/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "core/base/checked_math.h"
#include "core/base/printable.h"
#include "media/file_signature.h"
#include "media/picture_decoders.h"

namespace rullama {
namespace {

using media_internal::Bytes;
using media_internal::FileSignature;
using media_internal::PictureDecoder;
using media_internal::ReadDepth;
using media_internal::StoredPicture;
using namespace std::string_view_literals;

constexpr uint64_t kRgb = 3;

// Formats without a decoder are known to be refused by name.
struct PictureFormat {
  FileSignature signature;
  PictureDecoder* decode = nullptr;
};
#if defined(RULLAMA_HEIF)
constexpr std::string_view kExpectedPictures =
    "expected JPEG, PNG, WebP, GIF, BMP, HEIC or AVIF; convert the picture";
#define RL_HEIF_DECODER media_internal::DecodeHeif
#else
#define RL_HEIF_DECODER nullptr
#endif
#if !defined(RULLAMA_MEDIA_DECODERS)
constexpr std::string_view kExpectedPictures = "expected BMP, the one that this build reads";
#define RL_DECODER(function) nullptr
#else
#define RL_DECODER(function) media_internal::function
#if !defined(RULLAMA_HEIF)
constexpr std::string_view kExpectedPictures =
    "expected JPEG, PNG, WebP, GIF or BMP; convert the picture (HEIC and AVIF need a build with "
    "libheif)";
#endif
#endif
constexpr PictureFormat kPictureFormats[] = {
    {{"JPEG", 0, "\xFF\xD8\xFF"sv}, RL_DECODER(DecodeJpeg)},
    {{"PNG", 0, "\x89PNG\r\n\x1A\n"sv}, RL_DECODER(DecodePng)},
    {{"WebP", 8, "WEBP"sv}, RL_DECODER(DecodeWebp)},
    {{"GIF", 0, "GIF8"sv}, RL_DECODER(DecodeGif)},
    {{"AVIF", 4, "ftypavif"sv}, RL_HEIF_DECODER},
    {{"AVIF", 4, "ftypavis"sv}, RL_HEIF_DECODER},
    {{"HEIC", 4, "ftyphei"sv}, RL_HEIF_DECODER},
    {{"HEIC", 4, "ftyphev"sv}, RL_HEIF_DECODER},
    {{"HEIF", 4, "ftypmif1"sv}, RL_HEIF_DECODER},
    {{"HEIF", 4, "ftypmsf1"sv}, RL_HEIF_DECODER},
    {{"MP4", 4, "ftyp"sv}},
    {{"TIFF", 0, "II*\0"sv}},
    {{"TIFF", 0, "MM\0*"sv}},
    {{"JPEG XL", 0, "\xFF\x0A"sv}},
    {{"JPEG XL", 4, "JXL \r\n"sv}},
    {{"JPEG 2000", 4, "jP  \r\n"sv}},
    {{"JPEG 2000", 0, "\xFF\x4F\xFF\x51"sv}},
    {{"Photoshop", 0, "8BPS"sv}},
    {{"OpenEXR", 0, "\x76\x2F\x31\x01"sv}},
    {{"icon", 0, "\0\0\1\0"sv}},
    {{"QOI", 0, "qoif"sv}},
    {{"PDF", 0, "%PDF"sv}},
    {{"SVG", 0, "<svg"sv}},
    {{"SVG or another XML", 0, "<?xml"sv}},
    {{"Netpbm", 0, "P3\n"sv}},
    {{"Netpbm", 0, "P5\n"sv}},
    {{"Netpbm", 0, "P6\n"sv}},
    {{"BMP", 0, "BM"sv}, media_internal::DecodeBmp},
};
#undef RL_DECODER
#undef RL_HEIF_DECODER

std::string_view Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Error media.format, where no decoder takes the file.
Result<PictureDecoder*> FindDecoder(Bytes file) {
  const std::string_view text = Text(file);
  for (const PictureFormat& format : kPictureFormats) {
    if (!format.signature.IsOf(text)) continue;
    if (format.decode != nullptr) return format.decode;
    return MakeError(ErrorKind::kUsage, "media.format", "the picture is a {} file, {}",
                     format.signature.name, kExpectedPictures);
  }
  return media_internal::UnknownFormat("picture", text, kExpectedPictures);
}

Result<StoredPicture> Read(std::span<const std::byte> file, const PictureLimits& limits,
                           ReadDepth depth) {
  const Bytes bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  RL_ASSIGN_OR_RETURN(PictureDecoder* const decode, FindDecoder(bytes));
  if (limits.stop.stop_requested()) return media_internal::DecodingStopped();
  return decode(bytes, limits, depth);
}

tl::unexpected<Error> NoMemory(size_t bytes) {
  return MakeError(ErrorKind::kOutOfMemory, "media.memory",
                   "there is not enough memory to decode a picture of {} bytes; use a smaller one",
                   bytes);
}

}  // namespace

Result<PictureHeader> ReadPictureHeader(std::span<const std::byte> file,
                                        const PictureLimits& limits) {
  try {
    RL_ASSIGN_OR_RETURN(const StoredPicture picture, Read(file, limits, ReadDepth::kHeader));
    const uint64_t pixels = uint64_t{picture.width} * picture.height;
    const uint64_t turned = picture.orientation == 1 ? 0 : pixels * kRgb;  // a copy
    return PictureHeader{picture.width, picture.height,
                         pixels * picture.channels + picture.extra_bytes + turned};
  } catch (const std::bad_alloc&) {
    return NoMemory(file.size());
  }
}

Result<Picture> DecodePicture(std::span<const std::byte> file, const PictureLimits& limits) {
  try {
    RL_ASSIGN_OR_RETURN(StoredPicture picture, Read(file, limits, ReadDepth::kPixels));
    media_internal::BlendWithWhite(picture);
    return media_internal::Upright(std::move(picture));
  } catch (const std::bad_alloc&) {
    return NoMemory(file.size());
  }
}

namespace media_internal {

Status CheckPixels(uint64_t width, uint64_t height, const PictureLimits& limits) {
  if (width == 0 || height == 0) {
    return MakeError(ErrorKind::kUsage, "media.damaged",
                     "the picture has {} x {} pixels, expected at least one", width, height);
  }
  if (std::max(width, height) > limits.max_side) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the picture has {} x {} pixels, expected at most {} in a line; make it "
                     "smaller",
                     width, height, limits.max_side);
  }
  const auto pixels = CheckedMul(width, height);
  if (!pixels || *pixels > limits.max_pixels || !CheckedCast<uint32_t>(*pixels)) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the picture has {} x {} pixels, expected at most {} pixels; make it smaller",
                     width, height, limits.max_pixels);
  }
  return OkStatus();
}

Status SetSize(StoredPicture& picture, uint64_t width, uint64_t height, uint32_t channels,
               const PictureLimits& limits) {
  RL_RETURN_IF_ERROR(CheckPixels(width, height, limits));
  picture.width = static_cast<uint32_t>(width);
  picture.height = static_cast<uint32_t>(height);
  picture.channels = channels;
  return OkStatus();
}

void Allocate(StoredPicture& picture) {
  picture.samples.resize(size_t{picture.width} * picture.height * picture.channels);
}

tl::unexpected<Error> DecodingStopped() {
  return MakeError(ErrorKind::kRuntime, "run.cancelled", "decoding was told to stop");
}

tl::unexpected<Error> DamagedPicture(std::string_view format, std::string_view why) {
  return MakeError(ErrorKind::kUsage, "media.damaged",
                   "the {} file cannot be decoded ({}); the file is incomplete or damaged", format,
                   ShownName(why));
}

}  // namespace media_internal
}  // namespace rullama
