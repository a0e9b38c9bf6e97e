#include "core/base/mmap_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace rullama {

Result<MmapFile> MmapFile::Open(const std::filesystem::path& path) {
  MmapFile file;
  RL_ASSIGN_OR_RETURN(file.file_, RegularFile::Open(path));
  const uint64_t size = file.file_.size();
  if (size == 0) return file;
  if (size > std::numeric_limits<size_t>::max()) {
    return MakeError(ErrorKind::kIo, "io.mmap", "cannot map {} bytes of '{}': too many for memory",
                     size, file.path());
  }
  const auto bytes = static_cast<size_t>(size);
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.file_.fd(), 0);
  if (data == MAP_FAILED) {
    return MakeError(ErrorKind::kIo, "io.mmap", "cannot map {} bytes of '{}': {}", size,
                     file.path(), std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = bytes;
  return file;
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
  file_ = std::move(other.file_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

MmapFile::~MmapFile() { Unmap(); }

void MmapFile::Unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
}

}  // namespace rullama
