// Files and folders of a store of models, written so that a crash at any moment leaves no wrong
// file under a final name, and no link that somebody else made is followed.
//
// Errors: file.open, file.write (kIo) with the path; pull.no_space (kIo) if the disk is full or the
// file may not grow.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "downloads/pull_plan.h"

namespace rullama::downloads {

// A descriptor that is closed with the object.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// The error for errno `code` of a write to `path`.
tl::unexpected<Error> WriteFailure(const std::filesystem::path& path, int code);

Status MakeFolders(const std::filesystem::path& folder);

// Opens a plain file for reading and writing, making it if it is missing. A link, or anything else
// that is not a plain file, is removed first.
Result<OwnedFd> OpenOwnFile(const std::filesystem::path& path);

// Replaces a file: all of `text` or the old content.
Status ReplaceFile(const std::filesystem::path& path, std::string_view text);

// The text of a plain file of at most `max_bytes`; empty if there is none or it is longer.
std::string ReadOwnFile(const std::filesystem::path& path, size_t max_bytes);

// Replaces whatever has the name by a link.
Status MakeLink(const PlannedLink& link);

// Removes the folder and those above it, as far as they are empty and inside `root`.
void RemoveEmptyFolders(std::filesystem::path folder, const std::filesystem::path& root);

// Whether there is a plain file of this size.
bool HasBytes(const std::filesystem::path& path, uint64_t bytes);

// Error pull.no_space unless the file system of `root` has room for `bytes`.
Status CheckSpace(const std::filesystem::path& root, uint64_t bytes);

// An exclusive flock() on a file. It may be removed when it is given up.
class FileLock {
 public:
  // Waits for others, of which `hooks.note` tells; `name` is for people. Error run.cancelled.
  static Result<FileLock> Take(const std::filesystem::path& path, std::string_view name,
                               bool removes, const PullHooks& hooks);
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(std::filesystem::path path, OwnedFd fd, bool removes)
      : path_(std::move(path)), fd_(std::move(fd)), removes_(removes) {}

  std::filesystem::path path_;
  OwnedFd fd_;
  bool removes_;
};

}  // namespace rullama::downloads
