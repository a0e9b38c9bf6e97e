// The rows of a step in which an encoder reads several texts, each in a slot of its own, so that
// attention keeps them apart.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/runtime/step_rows.h"

namespace rullama {

struct TextPackLimits {
  int64_t rows = 1;       // of a step with several texts; one text may have more
  int64_t texts = 1;      // of a step
  int64_t alignment = 1;  // the first row of each text is a multiple of it
};

class TextPack {
 public:
  explicit TextPack(const TextPackLimits& limits) : limits_(limits) {
    step_.demand = DemandMode::kAllRows;
  }

  void Clear();
  // Adds a text, which has at least one token. Returns false if it does not fit; the first one
  // always does.
  bool Add(std::span<const int32_t> ids);

  // Demands all rows. Rows that no text has belong to a slot of their own.
  [[nodiscard]] const StepRows& step() const { return step_; }
  // The first row of each text, in the order in which they were added.
  [[nodiscard]] std::span<const int64_t> first_rows() const { return first_rows_; }

 private:
  // Adds rows up to row `end`.
  void Fill(int64_t end);

  TextPackLimits limits_;
  StepRows step_;
  std::vector<int64_t> first_rows_;
  int32_t slots_ = 0;  // in use
  // That of rows between texts and how many it has; below 0: there is none.
  int32_t gap_slot_ = -1;
  int32_t gap_rows_ = 0;
};

}  // namespace rullama
