#include "media/heif_coded_size.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
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

using ItemId = uint64_t;
using Done = tl::expected<void, HeifFault>;

tl::unexpected<HeifFault> Damaged(std::string_view why) {
  return tl::unexpected(HeifFault{.why = why, .damaged = true});
}
tl::unexpected<HeifFault> NotRead(std::string_view why) {
  return tl::unexpected(HeifFault{.why = why, .damaged = false});
}

// libheif copies the list of items once for each item, and an item's data with its configuration.
constexpr size_t kMostItems = 2048;
constexpr size_t kMostReferences = 8192;
constexpr uint64_t kMostConfigurationBytes = uint64_t{64} << 20;
// Items may share their data in small files.
constexpr uint64_t kLeastItemBytes = uint64_t{1} << 20;

// The boxes of a file that lead to its coded pictures. libheif takes the first of two boxes, or the
// last: there may be one of each.
struct MetaBoxes {
  std::map<std::string_view, Bytes> boxes;
  bool repeated = false;

  void Take(std::string_view type, Bytes box) {
    static constexpr std::string_view kTypes[] = {"meta", "iloc", "idat", "iprp",
                                                  "iinf", "iref", "pitm", "ipco"};
    const auto* const known = std::ranges::find(kTypes, type);
    if (known != std::end(kTypes)) repeated = !boxes.emplace(*known, box).second || repeated;
  }
  [[nodiscard]] Bytes Find(std::string_view type) const {
    const auto found = boxes.find(type);
    return found == boxes.end() ? Bytes() : found->second;
  }
};

tl::expected<MetaBoxes, HeifFault> FindBoxes(Bytes file) {
  MetaBoxes found;
  const auto take = [&](std::string_view type, Bytes box) { found.Take(type, box); };
  // Bytes after the last whole box do not matter to libheif either.
  ForEachBox(file, [&](std::string_view type, Bytes box) {
    if (type == "meta") take(type, box);
  });
  const Bytes meta = found.Find("meta");
  constexpr size_t kVersionAndFlags = 4;
  const bool whole = ForEachBox(meta.subspan(std::min(kVersionAndFlags, meta.size())), take) &&
                     ForEachBox(found.Find("iprp"), take);
  if (!whole) return Damaged("a box ends early");
  if (found.repeated) return Damaged("it has two boxes of a kind of which there is one");
  return found;
}

// The items of a file. An identifier may stand more than once, with several types.
struct Items {
  struct Reference {
    ItemId from = 0;
    ItemId to = 0;
  };
  std::multimap<ItemId, std::string_view> types;
  std::vector<Reference> parts;        // from a grid to its tiles, in boxes "dimg"
  std::vector<Reference> auxiliaries;  // from transparency, depth and the like to the picture
  std::vector<std::pair<ItemId, Bytes>> data;
  ItemId primary = 0;

  [[nodiscard]] bool Is(ItemId id, std::string_view type) const {
    const auto [first, last] = types.equal_range(id);
    return std::any_of(first, last, [&](const auto& item) { return item.second == type; });
  }
  // Whether libheif can take it for nothing but one of `wanted`.
  [[nodiscard]] bool IsOnly(ItemId id, std::span<const std::string_view> wanted) const {
    const auto [first, last] = types.equal_range(id);
    return first != last && std::all_of(first, last, [&](const auto& item) {
             return std::ranges::find(wanted, item.second) != wanted.end();
           });
  }
};

Done ReadTypes(Bytes iinf, Items& items) {
  ByteReader reader(iinf);
  const bool wide = reader.Number(1) > 0;
  reader.Take(3);
  reader.Number(wide ? 4 : 2);
  bool packed = false;
  const bool whole = ForEachBox(reader.left(), [&](std::string_view box_type, Bytes box) {
    ByteReader entry(box);
    const uint64_t version = entry.Number(1);
    entry.Take(3);
    if (box_type != "infe" || version < 2) return;  // no picture
    const ItemId id = entry.Number(version == 2 ? 2 : 4);
    entry.Number(2);
    const Bytes type = entry.Take(4);
    if (!entry.ok()) return;
    items.types.emplace(id,
                        std::string_view(reinterpret_cast<const char*>(type.data()), type.size()));
    const Bytes names = entry.left();
    packed = packed || std::string_view(reinterpret_cast<const char*>(names.data()), names.size())
                               .find("deflate") != std::string_view::npos;
  });
  if (!whole) return Damaged("its list of items ends early");
  if (items.types.size() > kMostItems) return NotRead("it has more than 2,048 items");
  if (packed) return NotRead("it has compressed metadata");
  return {};
}

// References are told apart by their counts, as libheif does, not by the sizes of their boxes.
Done ReadReferences(Bytes iref, Items& items) {
  if (iref.empty()) return {};
  ByteReader reader(iref);
  const size_t id_bytes = reader.Number(1) == 0 ? 2 : 4;
  reader.Take(3);
  while (!reader.left().empty()) {
    const uint64_t size = reader.Number(4);
    const Bytes type_bytes = reader.Take(4);
    const std::string_view type(reinterpret_cast<const char*>(type_bytes.data()),
                                type_bytes.size());
    const ItemId from = reader.Number(id_bytes);
    const uint64_t count = reader.Number(2);
    const bool fits = size == 8 + id_bytes + 2 + count * id_bytes && type != "uuid";
    if (!reader.ok() || !fits) return Damaged("its references between items have other sizes");
    for (uint64_t i = 0; i < count && reader.ok(); ++i) {
      const ItemId to = reader.Number(id_bytes);
      if (type == "dimg") items.parts.push_back({from, to});
      if (type == "auxl") items.auxiliaries.push_back({from, to});
    }
    if (!reader.ok()) return Damaged("its references between items end early");
    if (items.parts.size() + items.auxiliaries.size() > kMostReferences) {
      return NotRead("it has more than 8,192 references between items");
    }
  }
  return {};
}

// The data of the items: one piece each, so that it is what libheif gives to its decoders.
Done ReadPlaces(Bytes file, const MetaBoxes& boxes, Items& items) {
  ByteReader reader(boxes.Find("iloc"));
  const uint64_t version = reader.Number(1);
  reader.Take(3);
  const uint64_t sizes = reader.Number(2);
  const size_t offset_size = sizes >> 12 & 15, length_size = sizes >> 8 & 15,
               base_size = sizes >> 4 & 15, index_size = version == 0 ? 0 : sizes & 15;
  // libheif takes other sizes for none, and that of an index in version 1 likewise.
  for (const size_t size : {offset_size, length_size, base_size, index_size}) {
    if (size != 0 && size != 4 && size != 8) return Damaged("its list of places has odd sizes");
  }
  if (version == 1 && index_size != 0) return NotRead("its list of places has indices");
  const size_t id_bytes = version < 2 ? 2 : 4;
  const uint64_t count = reader.Number(id_bytes);
  if (count > kMostItems) return NotRead("it has more than 2,048 items");
  uint64_t left = std::max<uint64_t>(file.size(), kLeastItemBytes);
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    const ItemId id = reader.Number(id_bytes);
    const uint64_t method = version == 0 ? 0 : reader.Number(2) & 15;
    reader.Number(2);
    const uint64_t base = reader.Number(base_size), extents = reader.Number(2);
    if (extents == 0) continue;
    if (extents > 1) return NotRead("an item is in several pieces");
    reader.Number(index_size);
    const uint64_t offset = reader.Number(offset_size), length = reader.Number(length_size);
    if (method > 1) return NotRead("an item is a part of another");
    const Bytes from = method == 1 ? boxes.Find("idat") : file;
    const bool inside = base <= from.size() && offset <= from.size() - base &&
                        length <= from.size() - base - offset;
    if (!reader.ok() || !inside) return Damaged("an item ends after the file");
    if (length > left) return Damaged("its items are larger than the file");
    left -= length;
    items.data.emplace_back(
        id, from.subspan(static_cast<size_t>(base + offset), static_cast<size_t>(length)));
  }
  if (!reader.ok()) return Damaged("its list of places ends early");
  return {};
}

// Refused is what libheif 1.15 follows without an end, or without comparing sizes: pictures that
// consist of others in another way than a grid of coded tiles, transparency of a tile, and
// transparency of transparency.
Done CheckStructure(const Items& items) {
  static constexpr std::string_view kPictures[] = {"hvc1", "av01", "grid"};
  const std::span<const std::string_view> coded = std::span(kPictures).first(2);
  constexpr std::string_view kForeign = "a picture in it is neither HEVC, AV1 nor a grid of tiles";
  if (!items.IsOnly(items.primary, kPictures)) return NotRead(kForeign);
  std::set<ItemId> with_auxiliary;
  for (const Items::Reference& one : items.auxiliaries) with_auxiliary.insert(one.to);
  for (const Items::Reference& one : items.auxiliaries) {
    if (!items.IsOnly(one.from, kPictures)) return NotRead(kForeign);
    if (with_auxiliary.contains(one.from)) return NotRead("its transparency has transparency");
  }
  for (const Items::Reference& one : items.parts) {
    if (!items.Is(one.from, "grid")) continue;
    if (!items.IsOnly(one.to, coded)) return NotRead("a tile is not coded with HEVC or AV1");
    if (with_auxiliary.contains(one.to)) return NotRead("a tile has a transparency of its own");
  }
  return {};
}

tl::expected<Items, HeifFault> ReadItems(Bytes file, const MetaBoxes& boxes) {
  Items items;
  ByteReader pitm(boxes.Find("pitm"));
  const size_t id_bytes = pitm.Number(1) == 0 ? 2 : 4;
  pitm.Take(3);
  items.primary = pitm.Number(id_bytes);
  if (!pitm.ok()) return Damaged("it has no picture");
  if (auto done = ReadTypes(boxes.Find("iinf"), items); !done) return tl::unexpected(done.error());
  if (auto done = ReadReferences(boxes.Find("iref"), items); !done) {
    return tl::unexpected(done.error());
  }
  if (auto done = ReadPlaces(file, boxes, items); !done) return tl::unexpected(done.error());
  if (auto done = CheckStructure(items); !done) return tl::unexpected(done.error());
  return items;
}

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

// Adds the sizes in boxes with configurations, of a file with `items` items.
Done AddConfigurations(Bytes properties, size_t items, Sizes& sizes) {
  uint64_t bytes = 0;
  bool four = true;
  const bool whole = ForEachBox(properties, [&](std::string_view type, Bytes box) {
    if (type == "hvcC") four = sizes.AddHevcConfiguration(box) && four;
    if (type == "av1C") sizes.AddAv1Configuration(box);
    if (type == "hvcC" || type == "av1C") bytes += box.size();
  });
  if (!whole) return Damaged("its list of properties ends early");
  if (!four) return NotRead("its NAL units have lengths of other than four bytes");
  if (bytes * items > kMostConfigurationBytes) return NotRead("its parameter sets are too large");
  return {};
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
  Sizes coded;
  if (auto done = AddConfigurations(boxes->Find("ipco"), items->types.size(), coded); !done) {
    return tl::unexpected(done.error());
  }
  HeifSizes sizes;
  for (const auto& [id, data] : items->data) {
    if (items->Is(id, "hvc1")) coded.AddNalUnits(data);
    if (items->Is(id, "av01")) coded.AddObus(data);
    if (!items->Is(id, "grid")) continue;
    const std::optional<CodedSize> grid = SizeOfGrid(data);
    if (!grid) return Damaged("a grid has no size");
    if (!sizes.grid || grid->pixels() > sizes.grid->pixels()) sizes.grid = grid;
  }
  if (!coded.whole()) return Damaged("a coded picture ends early");
  if (!coded.largest()) return Damaged("it has no coded picture");
  sizes.coded = *coded.largest();
  return sizes;
}

}  // namespace rullama::media_internal
