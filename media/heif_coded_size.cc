#include "media/heif_coded_size.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace rullama::media_internal {
namespace {

// Big-endian numbers from the front of a span. After an end that came too early, all are 0.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : left_(bytes) {}

  uint64_t Number(size_t bytes) {
    uint64_t value = 0;
    for (const uint8_t byte : Take(bytes)) value = value << 8 | byte;
    return value;
  }
  Bytes Take(uint64_t count) {
    if (count > left_.size()) {
      ok_ = false;
      left_ = {};
      return {};
    }
    const Bytes taken = left_.first(static_cast<size_t>(count));
    left_ = left_.subspan(static_cast<size_t>(count));
    return taken;
  }
  [[nodiscard]] Bytes left() const { return left_; }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  Bytes left_;
  bool ok_ = true;
};

// Bits from the front of a span, the highest of a byte first. Likewise.
class BitReader {
 public:
  explicit BitReader(Bytes bytes) : bytes_(bytes) {}

  uint32_t Bits(uint32_t count) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; ++i, ++at_) {
      const bool inside = at_ / 8 < bytes_.size();
      ok_ = ok_ && inside;
      const uint32_t bit = inside ? bytes_[at_ / 8] >> (7 - at_ % 8) & 1U : 0;
      value = value << 1 | bit;
    }
    return value;
  }
  void Skip(uint32_t count) { at_ += count; }
  bool Flag() { return Bits(1) != 0; }
  // An exponential Golomb code, ue(v) of HEVC and uvlc() of AV1.
  uint64_t Golomb() {
    uint32_t zeros = 0;
    while (ok_ && zeros < 32 && !Flag()) ++zeros;
    return (uint64_t{1} << zeros) - 1 + Bits(zeros);
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  Bytes bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Calls `visit` for each box in `boxes` with its type and content. False if one does not fit.
bool ForEachBox(Bytes boxes, const std::function<void(std::string_view, Bytes)>& visit) {
  ByteReader reader(boxes);
  while (reader.left().size() >= 8) {
    uint64_t size = reader.Number(4), head = 8;
    const Bytes type = reader.Take(4);
    if (size == 1) {
      size = reader.Number(8);
      head = 16;
    }
    if (size == 0) size = head + reader.left().size();  // up to the end
    if (size < head) return false;
    const Bytes content = reader.Take(size - head);
    if (!reader.ok()) return false;
    visit({reinterpret_cast<const char*>(type.data()), type.size()}, content);
  }
  return true;
}

// The places of an item's data.
struct Extent {
  bool in_idat = false;  // of the meta box; else of the file
  uint64_t offset = 0;
  uint64_t length = 0;  // 0: up to the end
};

std::vector<Extent> ExtentsOf(Bytes iloc) {
  std::vector<Extent> extents;
  ByteReader reader(iloc);
  const uint64_t version = reader.Number(1);
  reader.Take(3);
  const uint64_t sizes = reader.Number(2);
  const size_t offset_size = sizes >> 12 & 15, length_size = sizes >> 8 & 15,
               base_size = sizes >> 4 & 15, index_size = version == 0 ? 0 : sizes & 15;
  const uint64_t items = reader.Number(version < 2 ? 2 : 4);
  for (uint64_t i = 0; i < items && reader.ok(); ++i) {
    reader.Number(version < 2 ? 2 : 4);
    const uint64_t method = version == 0 ? 0 : reader.Number(2) & 15;
    reader.Number(2);
    const uint64_t base = reader.Number(base_size);
    const uint64_t count = reader.Number(2);
    for (uint64_t j = 0; j < count && reader.ok(); ++j) {
      reader.Number(index_size);
      const uint64_t offset = reader.Number(offset_size);
      extents.push_back({method == 1, base + offset, reader.Number(length_size)});
    }
  }
  return reader.ok() ? extents : std::vector<Extent>();
}

class Sizes {
 public:
  void Add(const std::optional<CodedSize>& size) {
    if (size && (!largest_ || size->pixels() > largest_->pixels())) largest_ = size;
  }
  // Parameter sets in lists of NAL units, each after its length.
  void AddNalUnits(Bytes units, size_t length_size) {
    ByteReader reader(units);
    while (reader.left().size() > length_size) {
      const Bytes unit = reader.Take(reader.Number(length_size));
      if (unit.size() < 2) return;
      if ((unit[0] >> 1 & 63) == kSps) Add(SizeOfHevcSps(unit));
    }
  }
  void AddObus(Bytes obus) {
    ByteReader reader(obus);
    while (!reader.left().empty()) {
      const uint64_t head = reader.Number(1);
      if ((head & 4) != 0) reader.Number(1);
      uint64_t size = (head & 2) != 0 ? 0 : reader.left().size();
      for (uint32_t shift = 0; (head & 2) != 0 && shift < 56; shift += 7) {
        const uint64_t byte = reader.Number(1);
        size |= (byte & 127) << shift;
        if (byte < 128) break;
      }
      const Bytes payload = reader.Take(size);
      if (!reader.ok()) return;
      if ((head >> 3 & 15) == kSequenceHeader) Add(SizeOfAv1Sequence(payload));
    }
  }
  // The arrays of parameter sets in an hvcC box.
  void AddHevcConfiguration(Bytes box) {
    ByteReader reader(box);
    reader.Take(21);
    length_size_ = (reader.Number(1) & 3) + 1;
    const uint64_t arrays = reader.Number(1);
    for (uint64_t i = 0; i < arrays && reader.ok(); ++i) {
      reader.Number(1);
      const uint64_t units = reader.Number(2);
      for (uint64_t j = 0; j < units && reader.ok(); ++j) {
        const Bytes unit = reader.Take(reader.Number(2));
        if (unit.size() >= 2 && (unit[0] >> 1 & 63) == kSps) Add(SizeOfHevcSps(unit));
      }
    }
    hevc_ = true;
  }
  void AddAv1Configuration(Bytes box) {
    if (box.size() > 4) AddObus(box.subspan(4));
    av1_ = true;
  }
  void AddItem(Bytes data) {
    if (hevc_) AddNalUnits(data, length_size_);
    if (av1_) AddObus(data);
  }
  [[nodiscard]] const std::optional<CodedSize>& largest() const { return largest_; }

 private:
  static constexpr int kSps = 33, kSequenceHeader = 1;

  std::optional<CodedSize> largest_;
  size_t length_size_ = 4;  // of a NAL unit in an item
  bool hevc_ = false, av1_ = false;
};

// The boxes of a file that lead to its coded pictures.
struct MetaBoxes {
  Bytes properties, iloc, idat;
};
MetaBoxes FindBoxes(Bytes meta) {
  MetaBoxes found;
  constexpr size_t kVersionAndFlags = 4;
  ForEachBox(meta.subspan(std::min(kVersionAndFlags, meta.size())),
             [&](std::string_view type, Bytes box) {
               if (type == "iloc") found.iloc = box;
               if (type == "idat") found.idat = box;
               if (type != "iprp") return;
               ForEachBox(box, [&](std::string_view inner, Bytes properties) {
                 if (inner == "ipco") found.properties = properties;
               });
             });
  return found;
}

}  // namespace

std::optional<CodedSize> SizeOfHevcSps(Bytes nal) {
  // Without the bytes that keep start codes out of NAL units.
  std::vector<uint8_t> plain;
  for (size_t i = 2; i < nal.size(); ++i) {
    const bool inserted = nal[i] == 3 && i >= 4 && nal[i - 1] == 0 && nal[i - 2] == 0;
    if (!inserted) plain.push_back(nal[i]);
  }
  constexpr uint32_t kProfileBits = 88, kLevelBits = 8;
  BitReader bits(plain);
  bits.Skip(4);
  const uint32_t sub_layers = bits.Bits(3);
  bits.Skip(1 + kProfileBits + kLevelBits);
  uint32_t sub_layer_bits = 0;
  for (uint32_t i = 0; i < sub_layers; ++i) {
    if (bits.Flag()) sub_layer_bits += kProfileBits;
    if (bits.Flag()) sub_layer_bits += kLevelBits;
  }
  if (sub_layers > 0) bits.Skip(2 * (8 - sub_layers) + sub_layer_bits);
  bits.Golomb();  // id
  constexpr uint64_t kFullChroma = 3;
  if (bits.Golomb() == kFullChroma) bits.Skip(1);
  CodedSize size;
  size.width = bits.Golomb();
  size.height = bits.Golomb();
  if (!bits.ok()) return std::nullopt;
  return size;
}

std::optional<CodedSize> SizeOfAv1Sequence(Bytes payload) {
  BitReader bits(payload);
  bits.Skip(3 + 1);  // profile, still picture
  if (const bool reduced = bits.Flag(); reduced) {
    bits.Skip(5);
  } else {
    bool has_model = false;
    uint32_t delay_bits = 0;
    if (bits.Flag()) {  // timing
      bits.Skip(64);
      if (bits.Flag()) bits.Golomb();
      has_model = bits.Flag();
      if (has_model) {
        delay_bits = bits.Bits(5) + 1;
        bits.Skip(32 + 5 + 5);
      }
    }
    const bool has_delay = bits.Flag();
    const uint32_t points = bits.Bits(5) + 1;
    for (uint32_t i = 0; i < points; ++i) {
      bits.Skip(12);
      constexpr uint32_t kHighestWithoutTier = 7;
      if (bits.Bits(5) > kHighestWithoutTier) bits.Skip(1);
      if (has_model && bits.Flag()) bits.Skip(2 * delay_bits + 1);
      if (has_delay && bits.Flag()) bits.Skip(4);
    }
  }
  const uint32_t width_bits = bits.Bits(4) + 1, height_bits = bits.Bits(4) + 1;
  CodedSize size;
  size.width = uint64_t{bits.Bits(width_bits)} + 1;
  size.height = uint64_t{bits.Bits(height_bits)} + 1;
  if (!bits.ok()) return std::nullopt;
  return size;
}

std::optional<CodedSize> LargestCodedSize(Bytes file) {
  Sizes sizes;
  ForEachBox(file, [&](std::string_view file_box, Bytes meta) {
    if (file_box != "meta") return;
    const MetaBoxes boxes = FindBoxes(meta);
    ForEachBox(boxes.properties, [&](std::string_view type, Bytes box) {
      if (type == "hvcC") sizes.AddHevcConfiguration(box);
      if (type == "av1C") sizes.AddAv1Configuration(box);
    });
    for (const Extent& extent : ExtentsOf(boxes.iloc)) {
      const Bytes from = extent.in_idat ? boxes.idat : file;
      if (extent.offset > from.size()) continue;
      const Bytes rest = from.subspan(static_cast<size_t>(extent.offset));
      const uint64_t length = extent.length == 0 ? rest.size() : extent.length;
      sizes.AddItem(rest.first(static_cast<size_t>(std::min<uint64_t>(length, rest.size()))));
    }
  });
  return sizes.largest();
}

}  // namespace rullama::media_internal
