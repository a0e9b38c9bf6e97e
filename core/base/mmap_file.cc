#include "core/base/mmap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

Result<MmapFile> MmapFile::Open(const std::filesystem::path& path) {
  MmapFile file;
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
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ == 0) return file;
  void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, file.fd_, 0);
  if (data == MAP_FAILED) {
    return MakeError(ErrorKind::kIo, "io.mmap", "cannot map {} bytes of '{}': {}", file.size_,
                     file.path_, std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

Status MmapFile::CheckUnchanged() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || static_cast<size_t>(info.st_size) != size_) {
    return MakeError(
        ErrorKind::kIo, "io.mapped_file_changed",
        "'{}' changed while it was mapped: {} bytes expected; do not overwrite a model "
        "in use, replace it by renaming",
        path_, size_);
  }
  return OkStatus();
}

void MmapFile::Release(std::span<const std::byte> range) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + range.size()) / page * page;
  if (begin >= end) return;
  // This is advice only: if it fails, the pages stay until the system wants them.
  auto* first = const_cast<std::byte*>(range.data() + (begin - address));
  ::madvise(first, end - begin, MADV_DONTNEED);
}

MmapFile::MmapFile(MmapFile&& other) noexcept { *this = std::move(other); }

MmapFile& MmapFile::operator=(MmapFile&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

MmapFile::~MmapFile() { Unmap(); }

void MmapFile::Unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
  data_ = nullptr;
  fd_ = -1;
}

}  // namespace rullama
