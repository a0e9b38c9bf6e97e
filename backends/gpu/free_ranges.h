// A first-fit allocator of ranges of a block of memory. Adjacent free ranges are merged.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace rullama::gpu {

class FreeRanges {
 public:
  explicit FreeRanges(uint64_t bytes) { free_.emplace(0, bytes); }

  // Allocates a range and returns its offset, or nothing if none is large enough.
  std::optional<uint64_t> Take(uint64_t size) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      if (range->second < size) continue;
      const auto [offset, room] = *range;
      free_.erase(range);
      if (room > size) free_.emplace(offset + size, room - size);
      return offset;
    }
    return std::nullopt;
  }

  void GiveBack(uint64_t offset, uint64_t size) {
    const auto [range, inserted] = free_.emplace(offset, size);
    const auto next = std::next(range);
    if (next != free_.end() && range->first + range->second == next->first) {
      range->second += next->second;
      free_.erase(next);
    }
    if (range == free_.begin()) return;
    const auto before = std::prev(range);
    if (before->first + before->second == range->first) {
      before->second += range->second;
      free_.erase(range);
    }
  }

 private:
  std::map<uint64_t, uint64_t> free_;  // size by offset
};

}  // namespace rullama::gpu
