// Records that a plugin passes to the host in arrays whose structs may be larger than ours.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace rullama {

// Calls `read` with a copy of each of `count` records, `size` bytes apart, which may lie at any
// address. `read` returns the fault of a record, or an empty text. `wrong` is the first fault of
// this and of earlier calls; nothing is read after it.
template <typename Record, typename Read>
void ReadRecords(const Record* records, uint64_t size, uint64_t count, std::string& wrong,
                 const Read& read) {
  if (wrong.empty() && count > 0 && (records == nullptr || size < sizeof(Record))) {
    wrong = fmt::format("of {} bytes, expected at least {}", size, sizeof(Record));
  }
  const auto* at = reinterpret_cast<const std::byte*>(records);
  for (uint64_t i = 0; i < count && wrong.empty(); ++i, at += size) {
    Record record;
    std::memcpy(&record, at, sizeof(record));
    wrong = read(record);
  }
}

}  // namespace rullama
