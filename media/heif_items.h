// The boxes of a file of HEIC or AVIF that lead to its coded pictures: its items, their types,
// places and properties, and the references between them.
//
// Read as libheif 1.15 reads them: what it would read in another way, follow without an end or
// copy without a limit is a fault. Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "media/picture_decoders.h"

namespace rullama::media_internal {

// Why a file is not given to libheif.
struct HeifFault {
  std::string_view why;
  bool damaged = true;  // else whole, but of a kind that is not read
};

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

// Calls `visit` for each box in `boxes` with its type and content. False if one does not fit.
bool ForEachBox(Bytes boxes, const std::function<void(std::string_view, Bytes)>& visit);

using ItemId = uint64_t;
using Done = tl::expected<void, HeifFault>;

inline tl::unexpected<HeifFault> Damaged(std::string_view why) {
  return tl::unexpected(HeifFault{.why = why, .damaged = true});
}
inline tl::unexpected<HeifFault> NotRead(std::string_view why) {
  return tl::unexpected(HeifFault{.why = why, .damaged = false});
}

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

// Bytes after the last whole box do not matter.
tl::expected<MetaBoxes, HeifFault> FindBoxes(Bytes file);

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
  std::multimap<ItemId, size_t> properties;  // numbers of the boxes that describe them, from 1
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

// `boxes`: those of the file.
tl::expected<Items, HeifFault> ReadItems(Bytes file, const MetaBoxes& boxes);

}  // namespace rullama::media_internal
