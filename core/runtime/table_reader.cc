#include "core/runtime/table_reader.h"

#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <utility>

#include "core/gguf/dequantize.h"

namespace rullama {

TableReader::TableReader(const WeightSource& weights, TableLookup lookup, int64_t rows)
    : weights_(weights), lookup_(std::move(lookup)) {
  const TensorType& table = lookup_.table.type;
  const auto bytes = [&table](int64_t columns) {
    return RowBytes(table.dtype, static_cast<uint64_t>(columns));
  };
  row_bytes_ = bytes(table.last().constant);
  column_bytes_ = bytes(lookup_.column);
  encoded_.resize(static_cast<size_t>(bytes(lookup_.columns)));
  rows_.resize(static_cast<size_t>(rows * lookup_.columns));
}

Result<std::span<const float>> TableReader::Read(std::span<const int32_t> ids) {
  const auto columns = static_cast<size_t>(lookup_.columns);
  const Value& table = lookup_.table;
  std::span<float> out = rows_;
  for (const int32_t id : ids) {
    if (id < 0 || id >= table.type.rows().constant) {
      return MakeError(ErrorKind::kRuntime, "session.internal",
                       "row {} of '{}' is looked up, which has {} rows", id, table.name,
                       table.type.rows().constant);
    }
    const uint64_t first = static_cast<uint64_t>(id) * row_bytes_ + column_bytes_;
    RL_RETURN_IF_ERROR(weights_.Copy(table, first, encoded_));
    RL_RETURN_IF_ERROR(Dequantize(table.type.dtype, encoded_, out.first(columns)));
    out = out.subspan(columns);
  }
  return std::span(rows_).first(ids.size() * columns);
}

std::unique_ptr<TableReader> HostTables::ReaderOf(std::string_view input, int64_t rows) const {
  const auto lookup = std::ranges::find(lookups, input, &TableLookup::input);
  if (lookup == lookups.end()) return nullptr;
  return std::make_unique<TableReader>(weights, *lookup, rows);
}

}  // namespace rullama
