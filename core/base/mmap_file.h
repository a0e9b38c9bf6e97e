// A read-only memory mapping of a whole regular file.
//
// Ownership: the object owns the mapping; spans handed out die with it.
// Thread safety: immutable after Open; any thread may read.
// If the file shrinks on disk while mapped, reading past the new end raises SIGBUS; CheckUnchanged
// detects that before a long read, and the program's SIGBUS handler reports the remaining cases.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "core/base/regular_file.h"
#include "core/base/status.h"

namespace rullama {

class MmapFile {
 public:
  // Errors: io.open (missing, directory, FIFO, device; says which), io.permission, io.mmap.
  // An empty file gives an empty span, not an error.
  static Result<MmapFile> Open(const std::filesystem::path& path);

  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  MmapFile(const MmapFile&) = delete;
  MmapFile& operator=(const MmapFile&) = delete;
  ~MmapFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

  // Says that `range`, of this mapping, will not be read soon: its whole pages leave the process,
  // though not the system's cache. Reading them again brings them back.
  void Release(std::span<const std::byte> range) const;

  // Error io.mapped_file_changed if the file on disk no longer has the size it had when mapped.
  [[nodiscard]] Status CheckUnchanged() const { return file_.CheckUnchanged(); }

 private:
  MmapFile() = default;
  void Unmap();

  RegularFile file_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rullama
