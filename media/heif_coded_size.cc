#include "media/heif_coded_size.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "media/heif_items.h"

namespace rullama::media_internal {
namespace {

// libheif copies an item's data with its configuration.
constexpr uint64_t kMostConfigurationBytes = uint64_t{64} << 20;

// Bits from the front of a span, the highest of a byte first. After an end that came too early, all
// are 0.
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

// The size of a grid, from which libheif allocates: that of its box may be another.
std::optional<CodedSize> SizeOfGrid(Bytes data) {
  ByteReader reader(data);
  reader.Number(1);
  const size_t side_bytes = (reader.Number(1) & 1) != 0 ? 4 : 2;
  reader.Number(2);  // rows, columns
  CodedSize size;
  size.width = reader.Number(side_bytes);
  size.height = reader.Number(side_bytes);
  if (!reader.ok() || size.pixels() == 0) return std::nullopt;
  return size;
}

// Collects the sizes of coded pictures.
class Sizes {
 public:
  // A parameter set that ends early has a size for decoders that read on.
  void Add(const std::optional<CodedSize>& size) {
    whole_ = whole_ && size;
    if (size && (!largest_ || size->pixels() > largest_->pixels())) largest_ = size;
  }
  void Add(const Sizes& other) {
    whole_ = whole_ && other.whole_;
    if (other.largest_) Add(other.largest_);
  }
  // Parameter sets in a list of NAL units, each after its length of four bytes: libheif reads no
  // other lengths, whatever hvcC says.
  void AddNalUnits(Bytes units) {
    ByteReader reader(units);
    while (!reader.left().empty()) AddNalUnit(reader.Take(reader.Number(4)));
    whole_ = whole_ && reader.ok();
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
      if (reader.ok() && (head >> 3 & 15) == kSequenceHeader) Add(SizeOfAv1Sequence(payload));
    }
    whole_ = whole_ && reader.ok();
  }
  // The arrays of parameter sets in an hvcC box. False if its items have other lengths than four
  // bytes.
  [[nodiscard]] bool AddHevcConfiguration(Bytes box) {
    ByteReader reader(box);
    reader.Take(21);
    const bool four = (reader.Number(1) & 3) == 3;
    const uint64_t arrays = reader.Number(1);
    for (uint64_t i = 0; i < arrays && reader.ok(); ++i) {
      reader.Number(1);
      const uint64_t units = reader.Number(2);
      for (uint64_t j = 0; j < units && reader.ok(); ++j) {
        AddNalUnit(reader.Take(reader.Number(2)));
      }
    }
    whole_ = whole_ && reader.ok();
    return four;
  }
  void AddAv1Configuration(Bytes box) {
    if (box.size() > 4) AddObus(box.subspan(4));
  }
  [[nodiscard]] const std::optional<CodedSize>& largest() const { return largest_; }
  [[nodiscard]] bool whole() const { return whole_; }

 private:
  static constexpr int kSps = 33, kSequenceHeader = 1;

  void AddNalUnit(Bytes unit) {
    if (!unit.empty() && (unit[0] >> 1 & 63) == kSps) Add(SizeOfHevcSps(unit));
  }

  std::optional<CodedSize> largest_;
  bool whole_ = true;
};

// The sizes of coded pictures in a file.
struct FileSizes {
  Sizes all;
  // The size in each property; of no pixels where it is not a configuration or has no size.
  std::vector<CodedSize> of_properties;
  std::map<ItemId, CodedSize> of_data;  // of items that have parameter sets in their data
};

// Adds the sizes in boxes with configurations, of a file with `items` items.
Done AddConfigurations(Bytes properties, size_t items, FileSizes& sizes) {
  uint64_t bytes = 0;
  bool four = true;
  const bool whole = ForEachBox(properties, [&](std::string_view type, Bytes box) {
    Sizes own;
    if (type == "hvcC") four = own.AddHevcConfiguration(box) && four;
    if (type == "av1C") own.AddAv1Configuration(box);
    if (type == "hvcC" || type == "av1C") bytes += box.size();
    sizes.all.Add(own);
    sizes.of_properties.push_back(own.largest().value_or(CodedSize{}));
  });
  if (!whole) return Damaged("its list of properties ends early");
  if (!four) return NotRead("its NAL units have lengths of other than four bytes");
  if (bytes * items > kMostConfigurationBytes) return NotRead("its parameter sets are too large");
  return {};
}

// Adds the sizes in the data of coded items.
void AddData(const Items& items, FileSizes& sizes) {
  for (const auto& [id, data] : items.data) {
    Sizes own;
    if (items.Is(id, "hvc1")) own.AddNalUnits(data);
    if (items.Is(id, "av01")) own.AddObus(data);
    sizes.all.Add(own);
    if (!own.largest()) continue;
    CodedSize& size = sizes.of_data[id];
    if (own.largest()->pixels() > size.pixels()) size = *own.largest();
  }
}

// The largest size that decoding the item can have: the largest of the file if nothing tells.
CodedSize LargestOf(ItemId id, const Items& items, const FileSizes& sizes) {
  const auto found = sizes.of_data.find(id);
  CodedSize largest = found == sizes.of_data.end() ? CodedSize{} : found->second;
  const auto [first, last] = items.properties.equal_range(id);
  for (auto property = first; property != last; ++property) {
    const size_t number = property->second;
    if (number == 0 || number > sizes.of_properties.size()) continue;
    const CodedSize& size = sizes.of_properties[number - 1];
    if (size.pixels() > largest.pixels()) largest = size;
  }
  return largest.pixels() > 0 ? largest : sizes.all.largest().value_or(largest);
}

// The tiles of a grid.
struct Tiles {
  uint64_t pixels = 0;  // of all, counted each time that a tile is named
  CodedSize sides;      // the largest ones
};

std::map<ItemId, Tiles> TilesOfGrids(const Items& items, const FileSizes& sizes) {
  std::map<ItemId, Tiles> tiles;
  std::map<ItemId, CodedSize> known;
  for (const Items::Reference& part : items.parts) {
    const auto [found, is_new] = known.try_emplace(part.to);
    if (is_new) found->second = LargestOf(part.to, items, sizes);
    const CodedSize& size = found->second;
    Tiles& grid = tiles[part.from];
    constexpr uint64_t kMost = uint64_t{1} << 62;
    grid.pixels = std::min(kMost, grid.pixels + std::min(kMost, size.pixels()));
    grid.sides = {std::max(grid.sides.width, size.width), std::max(grid.sides.height, size.height)};
  }
  return tiles;
}

// Whether tiles have no more pixels than cover a grid, where the last of a row or column may stick
// out. A grid that names one tile thousands of times would take minutes to decode.
bool Cover(const Tiles& tiles, const CodedSize& grid) {
  constexpr uint64_t kMost = UINT32_MAX;  // so that their product is a number
  const CodedSize covered{std::min(kMost, grid.width + tiles.sides.width),
                          std::min(kMost, grid.height + tiles.sides.height)};
  constexpr uint64_t kSpare = 4;  // coded pictures may be larger than what is shown of them
  return tiles.pixels / kSpare <= covered.pixels();
}

}  // namespace

std::optional<CodedSize> SizeOfHevcSps(Bytes nal) {
  // Without the bytes that keep start codes out of NAL units.
  std::vector<uint8_t> plain;
  for (size_t i = 2; i < nal.size(); ++i) {
    // Decoders look at the two bytes of the header as well.
    const bool inserted = nal[i] == 3 && nal[i - 1] == 0 && nal[i - 2] == 0;
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
  constexpr uint64_t kMost = UINT32_MAX;  // so that their product is a number
  size.width = std::min(bits.Golomb(), kMost);
  size.height = std::min(bits.Golomb(), kMost);
  if (!bits.ok()) return std::nullopt;
  return size;
}

std::optional<CodedSize> SizeOfAv1Sequence(Bytes payload) {
  BitReader bits(payload);
  bits.Skip(3 + 1);  // profile, still picture
  const bool reduced = bits.Flag();
  if (reduced) {
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
  // A frame may have a side of its own of as many bits, if the header is not the reduced one. With
  // no more bits than the side needs, it is less than twice as long.
  const auto side = [&](uint32_t side_bits) {
    const uint64_t most = bits.Bits(side_bits);
    const bool spare = !reduced && side_bits > 1 && most >> (side_bits - 1) == 0;
    return spare ? uint64_t{1} << side_bits : most + 1;
  };
  CodedSize size;
  size.width = side(width_bits);
  size.height = side(height_bits);
  if (!bits.ok()) return std::nullopt;
  return size;
}

tl::expected<HeifSizes, HeifFault> ReadHeifSizes(Bytes file) {
  const auto boxes = FindBoxes(file);
  if (!boxes) return tl::unexpected(boxes.error());
  const auto items = ReadItems(file, *boxes);
  if (!items) return tl::unexpected(items.error());
  FileSizes found;
  if (auto done = AddConfigurations(boxes->Find("ipco"), items->types.size(), found); !done) {
    return tl::unexpected(done.error());
  }
  AddData(*items, found);
  const std::map<ItemId, Tiles> tiles = TilesOfGrids(*items, found);
  const Sizes& coded = found.all;
  HeifSizes sizes;
  for (const auto& [id, data] : items->data) {
    if (!items->Is(id, "grid")) continue;
    const std::optional<CodedSize> grid = SizeOfGrid(data);
    if (!grid) return Damaged("a grid has no size");
    if (const auto own = tiles.find(id); own != tiles.end() && !Cover(own->second, *grid)) {
      return Damaged("a grid names tiles with more than four times its pixels");
    }
    if (!sizes.grid || grid->pixels() > sizes.grid->pixels()) sizes.grid = grid;
  }
  if (!coded.whole()) return Damaged("a coded picture ends early");
  if (!coded.largest()) return Damaged("it has no coded picture");
  sizes.coded = *coded.largest();
  return sizes;
}

}  // namespace rullama::media_internal
