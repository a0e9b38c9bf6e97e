// A regular file that is open for reading: what MmapFile maps and RangeReader reads.
//
// Ownership: the object owns the descriptor. Thread safety: immutable after Open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/status.h"

namespace rullama {

class RegularFile {
 public:
  // Errors: io.open (missing, directory, FIFO, device; says which), io.permission.
  static Result<RegularFile> Open(const std::filesystem::path& path);

  RegularFile() = default;
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] uint64_t size() const { return size_; }  // when it was opened
  [[nodiscard]] const std::string& path() const { return path_; }

  // Error io.mapped_file_changed if the file on disk no longer has the size it had when opened.
  [[nodiscard]] Status CheckUnchanged() const;

 private:
  std::string path_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace rullama
