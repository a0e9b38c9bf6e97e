// The rows of a table that a step looks up, read by the host (core/passes/table_rows.h).
//
// Ownership: owns what it has read last; borrows the weight source, which outlives it. Thread
// safety: one thread at a time. Errors: session.internal for an id that the table does not have;
// those of the weight source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/passes/table_rows.h"
#include "core/runtime/weights.h"

namespace rullama {

class TableReader {
 public:
  // `rows`: an upper bound on the rows that are read at once.
  TableReader(const WeightSource& weights, TableLookup lookup, int64_t rows);

  // The chosen columns of these rows as f32, one row after the other. They stay until the next
  // call.
  Result<std::span<const float>> Read(std::span<const int32_t> ids);

 private:
  const WeightSource& weights_;
  TableLookup lookup_;
  uint64_t row_bytes_;              // in the table
  uint64_t column_bytes_;           // before the first column
  std::vector<std::byte> encoded_;  // of one row
  std::vector<float> rows_;
};

// The inputs of a session's graphs that the host fills with rows of tables.
struct HostTables {
  const WeightSource& weights;
  std::vector<TableLookup> lookups;

  // The reader of what an input has; null if it is not one of these.
  [[nodiscard]] std::unique_ptr<TableReader> ReaderOf(std::string_view input, int64_t rows) const;
};

}  // namespace rullama
