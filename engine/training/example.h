// One sequence to learn from. A value type.
#pragma once

#include <cstdint>
#include <vector>

namespace rullama {

// The target of a row that is not learnt.
inline constexpr int32_t kNoTarget = -1;

struct Example {
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;  // by row: the token that follows, or kNoTarget
  int64_t line = 0;              // of the file, from 1

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(ids.size()); }
  // Rows that are learnt.
  [[nodiscard]] int64_t counted() const {
    int64_t count = 0;
    for (const int32_t target : targets) count += target == kNoTarget ? 0 : 1;
    return count;
  }
};

}  // namespace rullama
