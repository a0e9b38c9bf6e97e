// A file that appears under its name only when it is complete: data goes to a temporary neighbour,
// which Commit flushes to the disk and renames. Without Commit the destructor removes it, so an
// interrupted conversion leaves neither a half model nor a damaged old one.
//
// Ownership: owns the descriptor and the temporary file. Thread safety: one thread at a time.
// Errors (kind kIo): io.open, io.permission, io.disk_full, io.write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace rullama {

class AtomicFile {
 public:
  // Creates the temporary file in the folder of `path`, which must exist.
  static Result<AtomicFile> Create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Small pieces are collected in a buffer. After an error the file can only be dropped.
  Status Append(std::span<const std::byte> bytes);
  // Replaces a file that already has the name. Append must not be called afterwards.
  Status Commit();

  // Bytes appended so far.
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  AtomicFile() = default;
  Status Flush();
  void Discard();

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty once committed or discarded
  std::vector<std::byte> buffer_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

// Writes all of `bytes`; `name` is the file's name for messages.
Status WriteFully(int fd, std::span<const std::byte> bytes, const std::string& name);

}  // namespace rullama
