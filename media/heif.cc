// HEIC, as phones write it, and AVIF, with libheif: the primary picture of the file, turned and cut
// as the file says.
//
// A file has sizes in its header and once more in its coded pictures, of which there may be many
// (tiles). Both count before anything is decoded, and a coded picture of another size than its
// header is refused.
#include <libheif/heif.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/printable.h"
#include "media/heif_coded_size.h"
#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

struct Release {
  void operator()(heif_context* context) const { heif_context_free(context); }
  void operator()(heif_image_handle* handle) const { heif_image_handle_release(handle); }
  void operator()(heif_image* image) const { heif_image_release(image); }
  void operator()(heif_decoding_options* options) const { heif_decoding_options_free(options); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;

// Memory of the library for a pixel in addition to its result: planes of up to 16 bits for three
// channels and alpha, and those that it converts them to.
constexpr uint64_t kPlaneBytes = 16;

// A format by the brand of its files (bytes 8 to 11). Files of the brands mif1 and msf1 may hold
// either.
struct Format {
  std::string_view name = "HEIF";
  heif_compression_format coding = heif_compression_undefined;
};
Format FormatOf(Bytes file) {
  const std::string_view brand(reinterpret_cast<const char*>(file.data()) + 8, 4);
  if (brand.starts_with("avi")) return {"AVIF", heif_compression_AV1};
  if (brand.starts_with("he")) return {"HEIC", heif_compression_HEVC};
  return {};
}

tl::unexpected<Error> NotDecoded(std::string_view format, std::string_view why) {
  return MakeError(ErrorKind::kUsage, "media.format",
                   "the picture is a {} file that libheif does not decode here ({}); install its "
                   "decoder, a package libheif-plugin-*, or convert the picture to JPEG",
                   format, why);
}

tl::unexpected<Error> ErrorOf(std::string_view format, const heif_error& error) {
  if (error.subcode == heif_suberror_Security_limit_exceeded) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the {} file, or a part of it, is larger than libheif takes ({}); make the "
                     "picture smaller",
                     format, ShownName(error.message));
  }
  if (error.code == heif_error_Memory_allocation_error) throw std::bad_alloc();
  const bool unknown =
      error.code == heif_error_Unsupported_feature || error.code == heif_error_Unsupported_filetype;
  if (unknown) return NotDecoded(format, ShownName(error.message));
  return DamagedPicture(format, error.message);
}

// A file whose boxes were read, and its primary picture. Refers to the bytes of the file.
struct OpenFile {
  Owned<heif_context> context;
  Owned<heif_image_handle> handle;
};

Result<OpenFile> Open(Bytes file, std::string_view format, const PictureLimits& limits) {
  OpenFile open{Owned<heif_context>(heif_context_alloc()), nullptr};
  if (!open.context) throw std::bad_alloc();
  // Planes of longer sides overflow in libheif 1.15, which has this limit unless it is set.
  constexpr uint32_t kLongestSide = 32'767;
  heif_context_set_maximum_image_size_limit(
      open.context.get(), static_cast<int>(std::min(limits.max_side, kLongestSide)));
  heif_context_set_max_decoding_threads(open.context.get(), 0);  // this one
  heif_error error = heif_context_read_from_memory_without_copy(open.context.get(), file.data(),
                                                                file.size(), nullptr);
  if (error.code != heif_error_Ok) return ErrorOf(format, error);
  heif_image_handle* handle = nullptr;
  error = heif_context_get_primary_image_handle(open.context.get(), &handle);
  open.handle.reset(handle);
  if (error.code != heif_error_Ok) return ErrorOf(format, error);
  return open;
}

// In planes: libheif 1.15 reads past the end of transparency that is smaller than its picture when
// it interleaves them. Not with strict_decoding, where its decoders never free a picture whose
// colours they do not know: what that would refuse is a warning here.
Result<Owned<heif_image>> DecodeImage(const OpenFile& open, std::string_view format) {
  const Owned<heif_decoding_options> options(heif_decoding_options_alloc());
  if (!options) throw std::bad_alloc();
  options->convert_hdr_to_8bit = 1;
  heif_image* image = nullptr;
  const heif_error error = heif_decode_image(open.handle.get(), &image, heif_colorspace_RGB,
                                             heif_chroma_444, options.get());
  Owned<heif_image> owned(image);
  if (error.code != heif_error_Ok) return ErrorOf(format, error);
  // A part that is missing, or colours in a way that nobody has defined. libheif 1.15 writes all
  // warnings, however few are asked for, and keeps the message of the last one alone.
  const int count = heif_image_get_decoding_warnings(image, 0, nullptr, 0);
  std::vector<heif_error> warnings(static_cast<size_t>(std::max(count, 0)));
  if (count > 0) {
    heif_image_get_decoding_warnings(image, 0, warnings.data(), count);
    return ErrorOf(format, warnings.back());
  }
  return owned;
}

// Colours before they were multiplied with their alpha.
void Unmultiply(std::span<uint8_t> rgba) {
  for (size_t at = 0; at + 4 <= rgba.size(); at += 4) {
    const uint32_t alpha = rgba[at + 3];
    if (alpha == 0) continue;
    for (size_t c = at; c < at + 3; ++c) {
      rgba[c] = static_cast<uint8_t>(std::min<uint32_t>(255, (rgba[c] * 255U + alpha / 2) / alpha));
    }
  }
}

// Copies a plane of 8 to 16 bits to every `channels`-th sample from `channel` on. Of more than 8
// bits the highest are kept.
Status CopyPlane(const heif_image* image, heif_channel plane, uint32_t channel,
                 std::string_view format, StoredPicture& picture) {
  int stride = 0;
  const uint8_t* rows = heif_image_get_plane_readonly(image, plane, &stride);
  const int bits = heif_image_get_bits_per_pixel_range(image, plane);
  if (rows == nullptr || bits < 8 || bits > 16) {
    return DamagedPicture(format, "its coded picture lacks a plane");
  }
  const size_t sample_bytes = bits > 8 ? 2 : 1;
  const bool fits = stride >= 0 && static_cast<size_t>(stride) >= picture.width * sample_bytes &&
                    heif_image_get_width(image, plane) == static_cast<int64_t>(picture.width) &&
                    heif_image_get_height(image, plane) == static_cast<int64_t>(picture.height);
  if (!fits) return DamagedPicture(format, "its coded picture has another size than its header");
  uint8_t* to = picture.samples.data() + channel;
  for (size_t y = 0; y < picture.height; ++y, rows += stride) {
    for (size_t x = 0; x < picture.width; ++x, to += picture.channels) {
      uint16_t sample = rows[x * sample_bytes];
      if (bits > 8) std::memcpy(&sample, rows + x * sample_bytes, sizeof sample);
      *to = static_cast<uint8_t>(sample >> (bits - 8));
    }
  }
  return OkStatus();
}

Status CopyPlanes(const heif_image* image, std::string_view format, StoredPicture& picture) {
  constexpr heif_channel kPlanes[] = {heif_channel_R, heif_channel_G, heif_channel_B,
                                      heif_channel_Alpha};
  for (uint32_t channel = 0; channel < picture.channels; ++channel) {
    RL_RETURN_IF_ERROR(CopyPlane(image, kPlanes[channel], channel, format, picture));
  }
  return OkStatus();
}

// The sizes that the file hides. Error also for a file that libheif must not see.
Result<HeifSizes> SizesOf(Bytes file, std::string_view format, const PictureLimits& limits) {
  const auto sizes = ReadHeifSizes(file);
  if (!sizes && sizes.error().damaged) return DamagedPicture(format, sizes.error().why);
  if (!sizes) {
    return MakeError(ErrorKind::kUsage, "media.format",
                     "the {} file is of a kind that is not read ({}); convert the picture to JPEG",
                     format, sizes.error().why);
  }
  RL_RETURN_IF_ERROR(CheckPixels(sizes->coded.width, sizes->coded.height, limits));
  if (sizes->grid) RL_RETURN_IF_ERROR(CheckPixels(sizes->grid->width, sizes->grid->height, limits));
  return *sizes;
}

Result<StoredPicture> Decode(Bytes file, const Format& format, const PictureLimits& limits,
                             ReadDepth depth) {
  if (format.coding != heif_compression_undefined &&
      heif_have_decoder_for_format(format.coding) == 0) {
    return NotDecoded(format.name, "there is no decoder for its coding");
  }
  RL_ASSIGN_OR_RETURN(const HeifSizes sizes, SizesOf(file, format.name, limits));
  RL_ASSIGN_OR_RETURN(const OpenFile open, Open(file, format.name, limits));
  const heif_image_handle* const handle = open.handle.get();
  const bool has_alpha = heif_image_handle_has_alpha_channel(handle) != 0;
  StoredPicture picture;
  // Sides below 0 become too large ones.
  RL_RETURN_IF_ERROR(SetSize(picture, static_cast<uint64_t>(heif_image_handle_get_width(handle)),
                             static_cast<uint64_t>(heif_image_handle_get_height(handle)),
                             has_alpha ? 4 : 3, limits));
  // A grid stays while its tiles are decoded.
  const uint64_t pixels = uint64_t{picture.width} * picture.height;
  const uint64_t coded = sizes.coded.pixels();
  const uint64_t most =
      sizes.grid ? std::max(pixels, sizes.grid->pixels()) + coded : std::max(pixels, coded);
  picture.extra_bytes = picture.channels * pixels + kPlaneBytes * most;
  if (depth == ReadDepth::kHeader) return picture;
  RL_ASSIGN_OR_RETURN(const Owned<heif_image> image, DecodeImage(open, format.name));
  if (limits.stop.stop_requested()) return DecodingStopped();
  Allocate(picture);
  RL_RETURN_IF_ERROR(CopyPlanes(image.get(), format.name, picture));
  if (has_alpha && heif_image_handle_is_premultiplied_alpha(handle) != 0) {
    Unmultiply(picture.samples);
  }
  return picture;
}

}  // namespace

Result<StoredPicture> DecodeHeif(Bytes file, const PictureLimits& limits, ReadDepth depth) {
  const Format format = FormatOf(file);
  try {
    return Decode(file, format, limits, depth);
  } catch (const std::bad_alloc&) {
    throw;  // for the caller, like that of every decoder
  } catch (const std::exception& error) {
    return DamagedPicture(format.name, error.what());
  }
}

}  // namespace rullama::media_internal
