// The parts of a file that are there. Thread safety: a value type.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace rullama::downloads {

struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;  // after the last byte

  [[nodiscard]] uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

class ByteRanges {
 public:
  // Adds a range, which may overlap or touch others.
  void Add(ByteRange range);

  // In order, not empty, neither overlapping nor touching.
  [[nodiscard]] const std::vector<ByteRange>& ranges() const { return ranges_; }
  [[nodiscard]] uint64_t bytes() const;
  // The first byte that is missing.
  [[nodiscard]] uint64_t Frontier() const;
  // The first gap below `end`, or nothing.
  [[nodiscard]] std::optional<ByteRange> FirstGap(uint64_t end) const;

 private:
  std::vector<ByteRange> ranges_;
};

}  // namespace rullama::downloads
