// The targets of a loss. The number of a row that does not count is never a column. Borrows the
// memory of the view.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/node.h"

namespace rullama::cpu {

class LossTargets {
 public:
  LossTargets(const View& targets, int64_t columns) : targets_(targets), columns_(columns) {}
  [[nodiscard]] bool Counts(int64_t row) const {
    const int32_t target = targets_.as<const int32_t>()[row];
    return target >= 0 && target < columns_;
  }
  // The column of a row that counts.
  [[nodiscard]] size_t Column(int64_t row) const {
    return static_cast<size_t>(targets_.as<const int32_t>()[row]);
  }

 private:
  View targets_;
  int64_t columns_;
};

}  // namespace rullama::cpu
