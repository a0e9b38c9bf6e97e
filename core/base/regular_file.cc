#include "core/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace rullama {
namespace {

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

}  // namespace

Result<RegularFile> RegularFile::Open(const std::filesystem::path& path) {
  RegularFile file;
  file.path_ = path.string();
  // O_NONBLOCK: opening a FIFO without a writer must not hang.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) {
    const int error = errno;
    if (error == EACCES) {
      return MakeError(ErrorKind::kIo, "io.permission",
                       "cannot read '{}': permission denied; check its owner and mode", file.path_);
    }
    return MakeError(ErrorKind::kIo, "io.open", "cannot open '{}': {}", file.path_,
                     std::strerror(error));
  }
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) {
    return MakeError(ErrorKind::kIo, "io.open", "cannot stat '{}': {}", file.path_,
                     std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return MakeError(ErrorKind::kIo, "io.open", "'{}' is {}, expected a regular file", file.path_,
                     KindOf(info.st_mode));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

Status RegularFile::CheckUnchanged() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || static_cast<uint64_t>(info.st_size) != size_) {
    return MakeError(ErrorKind::kIo, "io.mapped_file_changed",
                     "'{}' changed while it was in use: {} bytes expected; do not overwrite a "
                     "model in use, replace it by renaming",
                     path_, size_);
  }
  return OkStatus();
}

RegularFile::RegularFile(RegularFile&& other) noexcept { *this = std::move(other); }

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  path_ = std::move(other.path_);
  size_ = std::exchange(other.size_, 0);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

RegularFile::~RegularFile() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace rullama
