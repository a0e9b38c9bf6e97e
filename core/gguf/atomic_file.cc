#include "core/gguf/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace rullama {
namespace {

// Large enough that the cost of a system call disappears.
constexpr size_t kBufferBytes = size_t{1} << 20;
// Leftovers of crashed processes with the same id are rare; more than a few mean something else.
constexpr int kMaxNameAttempts = 100;

tl::unexpected<Error> IoError(int error, std::string_view action, const std::string& name) {
  if (error == ENOSPC || error == EDQUOT) {
    return MakeError(ErrorKind::kIo, "io.disk_full",
                     "cannot {} '{}': {}; free some space or write to another disk", action, name,
                     std::strerror(error));
  }
  if (error == EACCES || error == EPERM || error == EROFS) {
    return MakeError(ErrorKind::kIo, "io.permission",
                     "cannot {} '{}': {}; check the owner and mode of the folder", action, name,
                     std::strerror(error));
  }
  return MakeError(ErrorKind::kIo, action == "create" ? "io.open" : "io.write",
                   "cannot {} '{}': {}", action, name, std::strerror(error));
}

std::filesystem::path FolderOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// Makes the rename durable. Some file systems cannot sync a folder (EINVAL); the rename stands.
Status SyncFolder(const std::filesystem::path& path) {
  const std::filesystem::path folder = FolderOf(path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // A folder may be writable but not readable; then the file is complete all the same.
  if (fd < 0) return OkStatus();
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error != 0 && error != EINVAL) return IoError(error, "flush", folder.string());
  return OkStatus();
}

}  // namespace

Status WriteFully(int fd, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return IoError(errno, "write", name);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return OkStatus();
}

Result<AtomicFile> AtomicFile::Create(const std::filesystem::path& path) {
  AtomicFile file;
  file.path_ = path;
  for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
    const auto name =
        fmt::format(".{}.partial-{}-{}", path.filename().string(), ::getpid(), attempt);
    const std::filesystem::path temporary = FolderOf(path) / name;
    file.fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.fd_ >= 0) {
      file.temporary_ = temporary;
      file.buffer_.reserve(kBufferBytes);
      return file;
    }
    if (errno != EEXIST) break;
  }
  return IoError(errno, "create", path.string());
}

Status AtomicFile::Append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() <= kBufferBytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return OkStatus();
  }
  RL_RETURN_IF_ERROR(Flush());
  if (bytes.size() >= kBufferBytes) return WriteFully(fd_, bytes, path_.string());
  buffer_.assign(bytes.begin(), bytes.end());
  return OkStatus();
}

Status AtomicFile::Flush() {
  RL_RETURN_IF_ERROR(WriteFully(fd_, buffer_, path_.string()));
  buffer_.clear();
  return OkStatus();
}

Status AtomicFile::Commit() {
  RL_RETURN_IF_ERROR(Flush());
  if (::fsync(fd_) != 0) return IoError(errno, "flush", path_.string());
  // Some file systems report a failed write only now.
  if (::close(std::exchange(fd_, -1)) != 0) return IoError(errno, "close", path_.string());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return IoError(errno, "rename the finished file to", path_.string());
  }
  temporary_.clear();
  return SyncFolder(path_);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  Discard();
  path_ = std::move(other.path_);
  temporary_ = std::exchange(other.temporary_, {});
  buffer_ = std::move(other.buffer_);
  size_ = other.size_;
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

}  // namespace rullama
