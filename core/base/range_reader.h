// A file that is read a range of bytes at a time, where it cannot be mapped: a web page reads a
// file that was picked like this, and copies nothing of it.
//
// Thread safety: const methods from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/base/status.h"

namespace rullama {

// Whether MmapFile maps files; else it copies them into memory, and those of models are read by
// ranges.
#if defined(__EMSCRIPTEN__)
inline constexpr bool kMapsFiles = false;
#else
inline constexpr bool kMapsFiles = true;
#endif

class RangeReader {
 public:
  virtual ~RangeReader() = default;
  [[nodiscard]] virtual uint64_t size() const = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
  // Fills `to` with the bytes from `offset` on. Error io.read, also if the file ends before.
  [[nodiscard]] virtual Status Read(uint64_t offset, std::span<std::byte> to) const = 0;
  // Error io.mapped_file_changed if the file no longer has its size.
  [[nodiscard]] virtual Status CheckUnchanged() const = 0;
};

// A file of the system, which stays open. Errors: io.open, io.permission.
Result<std::unique_ptr<RangeReader>> OpenRangeReader(const std::filesystem::path& path);

}  // namespace rullama
