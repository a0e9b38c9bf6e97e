#include "core/gguf/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace rullama {
namespace {

namespace fs = std::filesystem;

// Large enough that the cost of a system call disappears.
constexpr size_t kBufferBytes = size_t{1} << 20;
// Leftovers of crashed processes with the same id are rare; more than a few mean something else.
constexpr int kMaxNameAttempts = 100;
constexpr int kMaxLinks = 40;  // as the kernel follows

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
  if (error == EPIPE) {
    return MakeError(ErrorKind::kIo, "io.pipe_closed", "the reader of '{}' went away", name);
  }
  if (error == EFBIG) {
    return MakeError(ErrorKind::kIo, "io.write",
                     "cannot {} '{}': {}; raise the limit on the size of files (ulimit -f), or "
                     "write to a file system that holds larger ones",
                     action, name, std::strerror(error));
  }
  return MakeError(ErrorKind::kIo, action == "create" ? "io.open" : "io.write",
                   "cannot {} '{}': {}", action, name, std::strerror(error));
}

fs::path FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// The name of a temporary file that becomes `target`, up to the number of the process.
std::string PartialPrefix(const fs::path& target) {
  return fmt::format(".{}.partial-", target.filename().string());
}

fs::path PartialName(const fs::path& target, int attempt) {
  return FolderOf(target) / fmt::format("{}{}-{}", PartialPrefix(target), ::getpid(), attempt);
}

std::string NameOfDescriptor(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// The target of a path: a name that is not a link, or a descriptor of this process (/dev/stdout).
struct Target {
  fs::path path;
  int descriptor = -1;
};

std::optional<int> ParseNumber(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Resolves links without realpath, since the last name may not exist yet and links in /proc/self/fd
// must not be followed: their text need not be a name, and opening them again would begin at the
// start of the file.
Result<Target> FollowLinks(const fs::path& path) {
  Target target{path};
  std::error_code code;
  const fs::path descriptors = fs::canonical("/proc/self/fd", code);
  for (int i = 0; i < kMaxLinks; ++i) {
    const fs::path folder = fs::canonical(FolderOf(target.path), code);
    if (!code && !descriptors.empty() && folder == descriptors) {
      const auto number = ParseNumber(target.path.filename().string());
      if (number) target.descriptor = *number;
      return target;
    }
    const fs::path link = fs::read_symlink(target.path, code);
    if (code) return target;  // no link
    target.path = link.is_absolute() ? link : FolderOf(target.path) / link;
  }
  return IoError(ELOOP, "create", path.string());
}

// `info` describes the target, or is null if there is none.
Status CheckReplaceable(const fs::path& path, const fs::path& target, const struct stat* info) {
  // "folder/" names a folder whether it exists or not.
  if (!target.has_filename() || (info != nullptr && !S_ISREG(info->st_mode))) {
    const bool socket = info != nullptr && S_ISSOCK(info->st_mode);
    return MakeError(ErrorKind::kIo, "io.open",
                     "cannot write to '{}': it is {}, expected the name of a file", path.string(),
                     socket ? "a socket" : "a directory");
  }
  if (info != nullptr && ::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) {
    return IoError(errno, "replace", path.string());
  }
  return OkStatus();
}

// Removes temporary files that killed processes of this user left for the same target. Best effort.
void RemoveLeftovers(const fs::path& target) {
  const std::string prefix = PartialPrefix(target);
  std::error_code code;
  for (fs::directory_iterator it(FolderOf(target), code), end; !code && it != end;
       it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(name).substr(prefix.size());
    const size_t dash = std::min(rest.find('-'), rest.size());
    const auto process = ParseNumber(rest.substr(0, dash));
    if (!process || !ParseNumber(rest.substr(std::min(dash + 1, rest.size())))) continue;
    if (::kill(*process, 0) == 0 || errno != ESRCH) continue;
    const int fd = ::open(it->path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    struct stat info {};
    const bool ours =
        ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid();
    if (ours && ::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
    ::close(fd);
  }
}

}  // namespace

Status SyncFolderOf(const fs::path& path) {
  const fs::path folder = FolderOf(path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // A folder may be writable but not readable; then the file is complete all the same.
  if (fd < 0) return OkStatus();
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some file systems cannot sync a folder (EINVAL); the rename stands.
  if (error != 0 && error != EINVAL) return IoError(error, "flush", folder.string());
  return OkStatus();
}

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

Result<AtomicFile> AtomicFile::Create(const fs::path& path, Temporary temporary) {
  if (path.empty()) {
    return MakeError(ErrorKind::kUsage, "io.output_name",
                     "the name of the output file is empty, expected a file");
  }
  AtomicFile file;
  file.path_ = path;
  RL_ASSIGN_OR_RETURN(const Target target, FollowLinks(path));
  file.target_ = target.path;
  struct stat info {};
  const bool exists = target.descriptor < 0 && ::stat(target.path.c_str(), &info) == 0;
  if (target.descriptor >= 0) {
    file.direct_ = true;
    file.fd_ = ::fcntl(target.descriptor, F_DUPFD_CLOEXEC, 0);
    if (file.fd_ < 0) return IoError(errno, "create", path.string());
  } else if (exists && (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode) || S_ISFIFO(info.st_mode))) {
    file.direct_ = true;
    file.fd_ = ::open(target.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (file.fd_ < 0 && errno == EINTR) {
      return MakeError(ErrorKind::kRuntime, "run.cancelled",
                       "cancelled while waiting for a reader of '{}'", path.string());
    }
    if (file.fd_ < 0) return IoError(errno, "create", path.string());
  } else {
    RL_RETURN_IF_ERROR(CheckReplaceable(path, target.path, exists ? &info : nullptr));
    RL_RETURN_IF_ERROR(file.OpenTemporary(temporary));
    if (temporary != Temporary::kPrivate) file.KeepMode();
  }
  file.buffer_.reserve(kBufferBytes);
  return file;
}

Status AtomicFile::OpenTemporary(Temporary temporary) {
  RemoveLeftovers(target_);
  const mode_t mode = temporary == Temporary::kPrivate ? 0600 : 0666;
  if (temporary == Temporary::kNamed) return OpenNamed(mode);
  fd_ = ::open(FolderOf(target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (fd_ < 0) {
    // Systems and file systems without unnamed files answer in one of these ways.
    const bool unsupported = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL;
    return unsupported ? OpenNamed(mode) : IoError(errno, "create", path_.string());
  }
  // A file without a name can only be linked later through /proc.
  if (::access(NameOfDescriptor(fd_).c_str(), F_OK) == 0) return OkStatus();
  ::close(std::exchange(fd_, -1));
  return OpenNamed(mode);
}

Status AtomicFile::OpenNamed(mode_t mode) {
  for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
    const fs::path name = PartialName(target_, attempt);
    fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ >= 0) {
      temporary_ = name;
      // Tells RemoveLeftovers of other processes, also in other PID namespaces, that it is in use.
      ::flock(fd_, LOCK_EX | LOCK_NB);
      return OkStatus();
    }
    if (errno != EEXIST) break;
  }
  return IoError(errno, "create", path_.string());
}

// Best effort: a file system may know no modes, and only root may give files away.
void AtomicFile::KeepMode() {
  struct stat info {};
  if (::stat(target_.c_str(), &info) != 0) return;
  const bool given = ::fchown(fd_, info.st_uid, info.st_gid) == 0;
  // If the file could not be given to the owner and group of the old one, our group does not get
  // the rights of theirs.
  const mode_t rights = given ? 0777 : 0707;
  ::fchmod(fd_, info.st_mode & rights);
}

Status AtomicFile::CheckIsNot(const fs::path& input) const {
  struct stat target {};
  struct stat other {};
  if (direct_ || ::stat(target_.c_str(), &target) != 0) return OkStatus();
  if (input.empty() || ::stat(input.c_str(), &other) != 0) return OkStatus();
  if (target.st_dev != other.st_dev || target.st_ino != other.st_ino) return OkStatus();
  return MakeError(ErrorKind::kUsage, "io.same_file",
                   "'{}' is '{}', which is read; give the output another name", path_.string(),
                   input.string());
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
  if (!direct_) {
    if (::fsync(fd_) != 0) return IoError(errno, "flush", path_.string());
    if (temporary_.empty()) RL_RETURN_IF_ERROR(NameTemporary());
  }
  // Some file systems report a failed write only now.
  if (::close(std::exchange(fd_, -1)) != 0) return IoError(errno, "close", path_.string());
  if (direct_) return OkStatus();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    return IoError(errno, "rename the finished file to", path_.string());
  }
  temporary_.clear();
  return SyncFolderOf(target_);
}

// A link cannot replace a file, so the finished file gets a name of its own for a moment.
Status AtomicFile::NameTemporary() {
  const std::string source = NameOfDescriptor(fd_);
  for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
    const fs::path name = PartialName(target_, attempt);
    if (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      return OkStatus();
    }
    if (errno != EEXIST) break;
  }
  return IoError(errno, "name the finished file", path_.string());
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  Discard();
  path_ = std::move(other.path_);
  target_ = std::move(other.target_);
  temporary_ = std::exchange(other.temporary_, {});
  buffer_ = std::move(other.buffer_);
  size_ = other.size_;
  fd_ = std::exchange(other.fd_, -1);
  direct_ = other.direct_;
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

}  // namespace rullama
