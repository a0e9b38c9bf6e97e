// Reads one number of an EXIF block: the orientation in the first directory of its TIFF structure.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "core/base/checked_math.h"
#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

// Numbers of a TIFF structure, in the byte order that its first two bytes name.
class TiffReader {
 public:
  explicit TiffReader(Bytes block) : block_(block) {}

  // False if the block is not a TIFF structure.
  bool ReadHeader() {
    if (block_.size() < 4 || block_[0] != block_[1]) return false;
    if (block_[0] != 'I' && block_[0] != 'M') return false;
    big_endian_ = block_[0] == 'M';
    constexpr uint32_t kTiffMagic = 42;
    return Number(2, 2) == kTiffMagic;
  }

  // The number in the `size` bytes (2 or 4) from `offset` on, or nothing beyond the end.
  [[nodiscard]] std::optional<uint32_t> Number(uint64_t offset, uint64_t size) const {
    if (!RangeFits(offset, size, block_.size())) return std::nullopt;
    uint32_t value = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t at = big_endian_ ? offset + i : offset + size - 1 - i;
      value = value << 8 | block_[static_cast<size_t>(at)];
    }
    return value;
  }

 private:
  Bytes block_;
  bool big_endian_ = false;
};

// The orientation in the entry at `entry`, if it is one that holds it.
std::optional<int> OrientationOf(const TiffReader& tiff, uint64_t entry) {
  constexpr uint32_t kOrientationTag = 0x0112;
  constexpr uint32_t kShort = 3;  // the type of a number of 16 bits
  constexpr uint32_t kLargest = 8;
  if (tiff.Number(entry, 2) != kOrientationTag) return std::nullopt;
  const auto value = tiff.Number(entry + 8, 2);
  const bool valid = tiff.Number(entry + 2, 2) == kShort && tiff.Number(entry + 4, 4) == 1u &&
                     value.has_value() && *value >= 1 && *value <= kLargest;
  return valid ? static_cast<int>(*value) : 1;
}

}  // namespace

int ExifOrientation(Bytes block) {
  constexpr std::array<uint8_t, 6> kPrefix = {'E', 'x', 'i', 'f', 0, 0};
  constexpr uint64_t kEntryBytes = 12;
  if (block.size() >= kPrefix.size() && std::equal(kPrefix.begin(), kPrefix.end(), block.begin())) {
    block = block.subspan(kPrefix.size());
  }
  TiffReader tiff(block);
  if (!tiff.ReadHeader()) return 1;
  const auto directory = tiff.Number(4, 4);
  if (!directory) return 1;
  const auto entries = tiff.Number(*directory, 2);
  if (!entries) return 1;
  for (uint64_t i = 0; i < *entries; ++i) {
    const uint64_t entry = uint64_t{*directory} + 2 + i * kEntryBytes;
    if (!RangeFits(entry, kEntryBytes, block.size())) return 1;
    if (const auto orientation = OrientationOf(tiff, entry)) return *orientation;
  }
  return 1;
}

}  // namespace rullama::media_internal
