#include "media/heif_items.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

namespace rullama::media_internal {
namespace {

// libheif copies the list of items once for each item.
constexpr size_t kMostItems = 2048;
constexpr size_t kMostReferences = 8192;
constexpr size_t kMostProperties = 65'536;
// Items may share their data in small files.
constexpr uint64_t kLeastItemBytes = uint64_t{1} << 20;

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

// Which properties items have. A file may say it in several boxes.
Done ReadProperties(Bytes iprp, Items& items) {
  bool whole = true;
  ForEachBox(iprp, [&](std::string_view type, Bytes box) {
    if (type != "ipma") return;
    ByteReader reader(box);
    const bool wide_items = reader.Number(1) > 0;
    const bool wide_properties = (reader.Number(3) & 1) != 0;
    const uint64_t count = reader.Number(4);
    for (uint64_t i = 0; i < count && reader.ok(); ++i) {
      const ItemId id = reader.Number(wide_items ? 4 : 2);
      const uint64_t properties = reader.Number(1);
      for (uint64_t j = 0; j < properties && items.properties.size() <= kMostProperties; ++j) {
        const uint64_t essential_and_number = reader.Number(wide_properties ? 2 : 1);
        items.properties.emplace(id, essential_and_number & (wide_properties ? 0x7fff : 0x7f));
      }
    }
    whole = whole && reader.ok();
  });
  if (!whole) return Damaged("its list of items' properties ends early");
  if (items.properties.size() > kMostProperties) {
    return NotRead("its items have more than 65,536 properties");
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

}  // namespace

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
  if (auto done = ReadProperties(boxes.Find("iprp"), items); !done) {
    return tl::unexpected(done.error());
  }
  if (auto done = ReadPlaces(file, boxes, items); !done) return tl::unexpected(done.error());
  if (auto done = CheckStructure(items); !done) return tl::unexpected(done.error());
  return items;
}

}  // namespace rullama::media_internal
