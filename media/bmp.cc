// BMP as screenshots and scanners write it: 1, 4 or 8 bits with a palette, 16, 24 or 32 bits, not
// compressed. Files with run lengths, or with a JPEG or PNG file inside, are refused.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

constexpr size_t kFileHeader = 14;
constexpr uint32_t kCoreHeader = 12;  // that of OS/2, with sides of 16 bits
constexpr uint32_t kInfoHeader = 40;
constexpr uint32_t kLongestHeader = 124;
constexpr size_t kMaskBytes = 4;
enum Compression : uint32_t { kNotCompressed = 0, kMasks = 3, kMasksWithAlpha = 6 };

// Little-endian numbers at offsets of a file; 0 beyond its end, which sizes are checked for.
class LittleEndian {
 public:
  explicit LittleEndian(Bytes file) : file_(file) {}
  [[nodiscard]] uint32_t U16(size_t at) const { return Of(at, 2); }
  [[nodiscard]] uint32_t U32(size_t at) const { return Of(at, 4); }

 private:
  [[nodiscard]] uint32_t Of(size_t at, size_t bytes) const {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes && at + i < file_.size(); ++i) {
      value |= uint32_t{file_[at + i]} << (8 * i);
    }
    return value;
  }
  Bytes file_;
};

// The bits of a pixel that a channel has.
struct Channel {
  uint32_t mask = 0;

  // The value of the channel in 8 bits; one of fewer bits is stretched to the whole range.
  [[nodiscard]] uint8_t Of(uint32_t pixel) const {
    const int low = std::countr_zero(mask);
    const uint64_t most = mask >> low;
    const uint64_t value = (pixel & mask) >> low;
    return static_cast<uint8_t>((value * 255 + most / 2) / most);
  }
  // Whether the bits stand together and lie in a pixel of `bits`.
  [[nodiscard]] bool IsValid(uint32_t bits) const {
    if (mask == 0) return false;
    const uint64_t shifted = uint64_t{mask} >> std::countr_zero(mask);
    return std::has_single_bit(shifted + 1) && (bits == 32 || mask >> bits == 0);
  }
};

struct BmpLayout {
  uint64_t width = 0;
  uint64_t height = 0;
  bool top_down = false;
  uint32_t bits = 0;
  uint32_t compression = kNotCompressed;
  size_t pixels_at = 0;
  size_t palette_at = 0;
  size_t palette_entry = 4;              // bytes
  uint32_t colours = 0;                  // of the palette
  std::array<Channel, 4> channels = {};  // red, green, blue, alpha

  [[nodiscard]] uint64_t row_bytes() const { return (width * bits + 7) / 8; }
  // Rows begin at multiples of four bytes.
  [[nodiscard]] uint64_t stride() const { return (row_bytes() + 3) / 4 * 4; }
  [[nodiscard]] bool has_alpha() const { return channels[3].mask != 0; }
};

tl::unexpected<Error> DamagedBmp(std::string_view why) { return DamagedPicture("BMP", why); }

tl::unexpected<Error> RefusedBmp(std::string_view kind) {
  return MakeError(
      ErrorKind::kUsage, "media.format",
      "the picture is a BMP file with {}, expected one that is not compressed, or JPEG, "
      "PNG, WebP or GIF; convert the picture",
      kind);
}

// Where 16 and 32 bits have their channels unless masks say so. The fourth byte of 32 bits has no
// meaning then.
constexpr std::array<Channel, 4> kChannels16 = {{{0x7C00}, {0x03E0}, {0x001F}, {}}};
constexpr std::array<Channel, 4> kChannels32 = {{{0xFF0000}, {0x00FF00}, {0x0000FF}, {}}};

// Sets the channels of a file with masks. They follow the header of 40 bytes, and are a part of
// longer ones.
Status ReadMasks(const LittleEndian& file, uint32_t header, BmpLayout& layout) {
  const bool reads_alpha =
      header >= kInfoHeader + 4 * kMaskBytes || layout.compression == kMasksWithAlpha;
  for (size_t i = 0; i < (reads_alpha ? 4U : 3U); ++i) {
    layout.channels[i].mask = file.U32(kFileHeader + kInfoHeader + i * kMaskBytes);
  }
  uint32_t seen = 0;
  for (size_t i = 0; i < layout.channels.size(); ++i) {
    const Channel& channel = layout.channels[i];
    if (i == 3 && channel.mask == 0) continue;
    if (!channel.IsValid(layout.bits) || (seen & channel.mask) != 0) {
      return DamagedBmp("its masks of channels are not valid");
    }
    seen |= channel.mask;
  }
  return OkStatus();
}

// Sets the channels, or where the palette is.
Status ReadColours(const LittleEndian& file, uint32_t header, BmpLayout& layout) {
  const bool has_masks = layout.compression != kNotCompressed;
  if (layout.bits <= 8) {
    if (has_masks) return DamagedBmp("a palette and masks of channels");
    const uint32_t given = header == kCoreHeader ? 0 : file.U32(kFileHeader + 32);
    layout.colours = given == 0 ? 1U << layout.bits : std::min(given, 1U << layout.bits);
    layout.palette_at = kFileHeader + header;
    const size_t end = std::max(layout.pixels_at, layout.palette_at);  // some are cut short
    const size_t room = (end - layout.palette_at) / layout.palette_entry;
    layout.colours = static_cast<uint32_t>(std::min<size_t>(layout.colours, room));
    return OkStatus();
  }
  if (layout.bits == 24 && has_masks) return DamagedBmp("24 bits and masks of channels");
  if (has_masks) return ReadMasks(file, header, layout);
  layout.channels = layout.bits == 16 ? kChannels16 : kChannels32;
  return OkStatus();
}

Status ReadSides(const LittleEndian& file, uint32_t header, BmpLayout& layout) {
  if (header == kCoreHeader) {
    layout.width = file.U16(kFileHeader + 4);
    layout.height = file.U16(kFileHeader + 6);
    layout.bits = file.U16(kFileHeader + 10);
    layout.palette_entry = 3;
    return OkStatus();
  }
  const auto width = static_cast<int32_t>(file.U32(kFileHeader + 4));
  const auto height = static_cast<int32_t>(file.U32(kFileHeader + 8));
  if (width <= 0) return DamagedBmp("its width is not a positive number");
  layout.width = static_cast<uint64_t>(width);
  layout.top_down = height < 0;
  layout.height = static_cast<uint64_t>(height < 0 ? -int64_t{height} : int64_t{height});
  layout.bits = file.U16(kFileHeader + 14);
  layout.compression = file.U32(kFileHeader + 16);
  return OkStatus();
}

Status CheckCompression(uint32_t compression) {
  switch (compression) {
    case kNotCompressed:
    case kMasks:
    case kMasksWithAlpha:
      return OkStatus();
    case 1:
    case 2:
      return RefusedBmp("run lengths");
    case 4:
      return RefusedBmp("a JPEG file inside");
    case 5:
      return RefusedBmp("a PNG file inside");
    default:
      return RefusedBmp("an unknown compression");
  }
}

Result<BmpLayout> ReadLayout(Bytes bytes) {
  const LittleEndian file(bytes);
  const uint32_t header = file.U32(kFileHeader);
  const bool known = header == kCoreHeader || (header >= kInfoHeader && header <= kLongestHeader);
  if (!known) return DamagedBmp("the size of its header is that of no version");
  if (bytes.size() < kFileHeader + header) return DamagedBmp("the file ends too early");
  BmpLayout layout;
  layout.pixels_at = file.U32(10);
  RL_RETURN_IF_ERROR(ReadSides(file, header, layout));
  RL_RETURN_IF_ERROR(CheckCompression(layout.compression));
  constexpr uint32_t kBits[] = {1, 4, 8, 16, 24, 32};
  if (std::ranges::find(kBits, layout.bits) == std::end(kBits)) {
    return DamagedBmp("its number of bits is not 1, 4, 8, 16, 24 or 32");
  }
  RL_RETURN_IF_ERROR(ReadColours(file, header, layout));
  return layout;
}

// Writes the pixels of a row with an index into the palette each.
bool ReadIndices(Bytes file, const BmpLayout& layout, const uint8_t* row, uint8_t* to) {
  const uint32_t per_byte = 8 / layout.bits;
  for (uint64_t x = 0; x < layout.width; ++x, to += 3) {
    const uint32_t shift = 8 - layout.bits * static_cast<uint32_t>(x % per_byte + 1);
    const uint32_t index = (row[x / per_byte] >> shift) & ((1U << layout.bits) - 1);
    if (index >= layout.colours) return false;
    const uint8_t* colour = &file[layout.palette_at + index * layout.palette_entry];
    for (size_t c = 0; c < 3; ++c) to[c] = colour[2 - c];
  }
  return true;
}

// Writes the pixels of a row with channels.
void ReadChannels(const BmpLayout& layout, const uint8_t* row, uint32_t channels, uint8_t* to) {
  const size_t bytes = layout.bits / 8;
  for (uint64_t x = 0; x < layout.width; ++x, row += bytes, to += channels) {
    uint32_t pixel = 0;
    for (size_t i = 0; i < bytes; ++i) pixel |= uint32_t{row[i]} << (8 * i);
    for (size_t c = 0; c < channels; ++c) to[c] = layout.channels[c].Of(pixel);
  }
}

Status ReadBmpRows(Bytes file, const BmpLayout& layout, const PictureLimits& limits,
                   StoredPicture& picture) {
  const size_t row_bytes = size_t{picture.width} * picture.channels;
  for (uint32_t i = 0; i < picture.height; ++i) {
    if (limits.stop.stop_requested()) return DecodingStopped();
    const uint8_t* row = &file[static_cast<size_t>(layout.pixels_at + i * layout.stride())];
    const uint32_t y = layout.top_down ? i : picture.height - 1 - i;
    uint8_t* to = picture.samples.data() + y * row_bytes;
    if (layout.bits > 8) {
      ReadChannels(layout, row, picture.channels, to);
    } else if (!ReadIndices(file, layout, row, to)) {
      return DamagedBmp("a pixel has no colour in its palette");
    }
  }
  return OkStatus();
}

// Programs that know no transparency leave alpha 0 everywhere.
void ShowIfAllIsTransparent(StoredPicture& picture) {
  constexpr size_t kRgba = 4;
  if (picture.channels != kRgba) return;
  for (size_t i = 3; i < picture.samples.size(); i += kRgba) {
    if (picture.samples[i] != 0) return;
  }
  for (size_t i = 3; i < picture.samples.size(); i += kRgba) picture.samples[i] = 255;
}

}  // namespace

Result<StoredPicture> DecodeBmp(Bytes file, const PictureLimits& limits, ReadDepth depth) {
  RL_ASSIGN_OR_RETURN(const BmpLayout layout, ReadLayout(file));
  StoredPicture picture;
  RL_RETURN_IF_ERROR(
      SetSize(picture, layout.width, layout.height, layout.has_alpha() ? 4 : 3, limits));
  if (depth == ReadDepth::kHeader) return picture;
  const uint64_t palette_end = layout.palette_at + uint64_t{layout.colours} * layout.palette_entry;
  const uint64_t pixels_end =
      layout.pixels_at + layout.stride() * (layout.height - 1) + layout.row_bytes();
  if (std::max(palette_end, pixels_end) > file.size()) return DamagedBmp("the file ends too early");
  Allocate(picture);
  RL_RETURN_IF_ERROR(ReadBmpRows(file, layout, limits, picture));
  ShowIfAllIsTransparent(picture);
  return picture;
}

}  // namespace rullama::media_internal
