#include "downloads/byte_ranges.h"

#include <algorithm>

namespace rullama::downloads {

void ByteRanges::Add(ByteRange range) {
  if (range.begin >= range.end) return;
  const auto first = std::ranges::find_if(
      ranges_, [&](const ByteRange& other) { return other.end >= range.begin; });
  auto last = first;
  for (; last != ranges_.end() && last->begin <= range.end; ++last) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
  }
  ranges_.insert(ranges_.erase(first, last), range);
}

uint64_t ByteRanges::bytes() const {
  uint64_t sum = 0;
  for (const ByteRange& range : ranges_) sum += range.size();
  return sum;
}

uint64_t ByteRanges::Frontier() const {
  return ranges_.empty() || ranges_[0].begin > 0 ? 0 : ranges_[0].end;
}

std::optional<ByteRange> ByteRanges::FirstGap(uint64_t end) const {
  uint64_t at = 0;
  for (const ByteRange& range : ranges_) {
    if (range.begin > at) break;
    at = range.end;
  }
  if (at >= end) return std::nullopt;
  const auto next =
      std::ranges::find_if(ranges_, [at](const ByteRange& range) { return range.begin > at; });
  return ByteRange{at, next == ranges_.end() ? end : std::min(end, next->begin)};
}

}  // namespace rullama::downloads
