#include "downloads/store_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "downloads/answers.h"

namespace rullama::downloads {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSpareBytes = uint64_t{64} << 20;  // of a disk that is not to be filled
constexpr mode_t kFileMode = 0644;
constexpr std::chrono::milliseconds kLockLook{100};

tl::unexpected<Error> OpenFailure(const fs::path& path, int code) {
  return MakeError(ErrorKind::kIo, "file.open", "cannot open '{}': {}", path.string(),
                   std::strerror(code));
}

bool IsPlain(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

Status WriteWhole(int fd, std::string_view text, const fs::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteFailure(path, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return OkStatus();
}

}  // namespace

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

tl::unexpected<Error> WriteFailure(const fs::path& path, int code) {
  if (code == ENOSPC || code == EFBIG || code == EDQUOT) {
    return MakeError(ErrorKind::kIo, "pull.no_space",
                     "cannot write to '{}': {}; make room and run the same command again, which "
                     "continues",
                     path.string(), std::strerror(code));
  }
  return MakeError(ErrorKind::kIo, "file.write", "cannot write to '{}': {}", path.string(),
                   std::strerror(code));
}

Status MakeFolders(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure || !fs::is_directory(folder, failure)) {
    return WriteFailure(folder, failure ? failure.value() : ENOTDIR);
  }
  return OkStatus();
}

Result<OwnedFd> OpenOwnFile(const fs::path& path) {
  for (const bool again : {false, true}) {
    OwnedFd fd(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, kFileMode));
    if (fd.get() >= 0 && IsPlain(fd.get())) return fd;
    const int code = fd.get() < 0 ? errno : EINVAL;
    if (again || (fd.get() < 0 && code != ELOOP)) return OpenFailure(path, code);
    ::unlink(path.c_str());
  }
  return OpenFailure(path, EINVAL);
}

Status ReplaceFile(const fs::path& path, std::string_view text) {
  const fs::path fresh = path.string() + ".rullama-new";
  ::unlink(fresh.c_str());
  const OwnedFd fd(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (fd.get() < 0) return OpenFailure(fresh, errno);
  Status written = WriteWhole(fd.get(), text, fresh);
  if (written && ::rename(fresh.c_str(), path.c_str()) != 0) written = WriteFailure(path, errno);
  if (!written) ::unlink(fresh.c_str());
  return written;
}

std::string ReadOwnFile(const fs::path& path, size_t max_bytes) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0 || !IsPlain(fd.get())) return {};
  std::string text(max_bytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > max_bytes) return {};
  text.resize(size);
  return text;
}

Status MakeLink(const PlannedLink& link) {
  std::error_code failure;
  if (fs::is_symlink(link.path, failure) && fs::read_symlink(link.path, failure) == link.target) {
    return OkStatus();
  }
  RL_RETURN_IF_ERROR(MakeFolders(link.path.parent_path()));
  const fs::path fresh = link.path.string() + ".rullama-new";
  ::unlink(fresh.c_str());
  if (::symlink(link.target.c_str(), fresh.c_str()) != 0) return WriteFailure(fresh, errno);
  if (::rename(fresh.c_str(), link.path.c_str()) == 0) return OkStatus();
  const int code = errno;
  ::unlink(fresh.c_str());
  return WriteFailure(link.path, code);
}

void RemoveEmptyFolders(fs::path folder, const fs::path& root) {
  // rmdir() refuses a folder that is not empty.
  while (folder != root && folder.has_relative_path() && ::rmdir(folder.c_str()) == 0) {
    folder = folder.parent_path();
  }
}

bool HasBytes(const fs::path& path, uint64_t bytes) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<uint64_t>(status.st_size) == bytes;
}

Status CheckSpace(const fs::path& root, uint64_t bytes) {
  std::error_code failure;
  fs::path there = fs::absolute(root, failure);
  while (!fs::exists(there, failure) && there.has_relative_path()) there = there.parent_path();
  struct statvfs status {};
  if (bytes == 0 || ::statvfs(there.c_str(), &status) != 0) return OkStatus();
  const uint64_t free_bytes = uint64_t{status.f_bavail} * status.f_frsize;
  if (free_bytes >= kSpareBytes && free_bytes - kSpareBytes >= bytes) return OkStatus();
  return MakeError(ErrorKind::kIo, "pull.no_space",
                   "'{}' has {} free, expected {} for the download and {} to spare; make room, or "
                   "set HF_HUB_CACHE or OLLAMA_MODELS to a folder on another disk",
                   there.string(), SizeText(free_bytes), SizeText(bytes), SizeText(kSpareBytes));
}

Result<FileLock> FileLock::Take(const fs::path& path, std::string_view name, bool removes,
                                const PullHooks& hooks) {
  RL_RETURN_IF_ERROR(MakeFolders(path.parent_path()));
  bool told = false;
  for (;;) {
    OwnedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kFileMode));
    if (fd.get() < 0) return OpenFailure(path, errno);
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return OpenFailure(path, errno);
      if (!std::exchange(told, true) && hooks.note) {
        hooks.note(fmt::format("waiting for another program that downloads {}", ShownName(name)));
      }
      if (!WaitUnless(hooks, kLockLook)) return tl::unexpected(CancelledPull());
    }
    // The holder before may have removed the file while this one waited.
    struct stat held {};
    struct stat named {};
    if (::fstat(fd.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      return FileLock(path, std::move(fd), removes);
    }
  }
}

FileLock::~FileLock() {
  if (fd_.get() >= 0 && removes_) ::unlink(path_.c_str());
}

}  // namespace rullama::downloads
