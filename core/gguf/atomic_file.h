// The output file of every command. A regular file appears under its name only when it is complete:
// data goes to a temporary file of the same folder, which Commit flushes to the disk and renames.
// Without Commit the destructor removes it, so an interrupted conversion leaves neither a half
// model nor a damaged old one. Where the file system allows it the temporary file has no name, so
// that nothing is left when the process is killed; elsewhere leftovers of killed processes are
// removed by the next one that writes the same file.
//
// Links are followed, and a file that is replaced keeps its mode. Devices, FIFOs and descriptors
// (/dev/null, /dev/stdout) are never replaced but written to directly.
//
// Ownership: owns the descriptor and the temporary file. Thread safety: one thread at a time.
// Errors: io.open (also for folders and sockets), io.permission, io.disk_full, io.write,
// io.pipe_closed (kIo);
// io.output_name (an empty name), io.same_file (kUsage); run.cancelled if a signal interrupts the
// wait for the reader of a FIFO.
#pragma once

#include <sys/types.h>

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
  enum class Temporary {
    kUnnamed,  // if the file system has such files
    kNamed,
    kPrivate,  // as kUnnamed; only its owner may read the file, whatever the mode of an older one
  };

  // Opens the file that `path` names, or a temporary file in its folder, which must exist. Call it
  // before the work begins, so that a name that cannot be written is noticed then.
  static Result<AtomicFile> Create(const std::filesystem::path& path,
                                   Temporary temporary = Temporary::kUnnamed);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // io.same_file if the file to be replaced is `input`, under whatever name. An empty name means no
  // input.
  [[nodiscard]] Status CheckIsNot(const std::filesystem::path& input) const;

  // Appends through a buffer, so small pieces are cheap. After an error the file can only be
  // dropped.
  Status Append(std::span<const std::byte> bytes);
  // Replaces a file that already has the name. Append must not be called afterwards.
  Status Commit();

  // Bytes appended so far.
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  AtomicFile() = default;
  Status OpenTemporary(Temporary temporary);
  Status OpenNamed(mode_t mode);
  void KeepMode();
  Status NameTemporary();
  Status Flush();
  void Discard();

  std::filesystem::path path_;       // as given, for messages
  std::filesystem::path target_;     // the file to replace: `path_` with its links followed
  std::filesystem::path temporary_;  // empty if it has no name, and once committed or discarded
  std::vector<std::byte> buffer_;
  uint64_t size_ = 0;
  int fd_ = -1;
  bool direct_ = false;  // a device, a FIFO or a descriptor: nothing is renamed
};

// Makes a rename of `path`, or its removal, durable: flushes the folder that it is in. Errors io.*.
Status SyncFolderOf(const std::filesystem::path& path);

// Writes all of `bytes`; `name` is the file's name for messages.
Status WriteFully(int fd, std::span<const std::byte> bytes, const std::string& name);

}  // namespace rullama
