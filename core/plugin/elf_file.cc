#include "core/plugin/elf_file.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "core/base/checked_math.h"

namespace rullama {
namespace {

// Sums of numbers from a damaged file may wrap around; then no file is long enough.
uint64_t EndOf(uint64_t offset, uint64_t bytes) {
  return CheckedAdd(offset, bytes).value_or(std::numeric_limits<uint64_t>::max());
}

// `count` headers at `offset`, which the file has room for; none if it cannot be read.
template <typename Header>
std::vector<Header> ReadTable(std::ifstream& file, uint64_t offset, uint16_t count) {
  std::vector<Header> headers(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(headers.data()),
            static_cast<std::streamsize>(headers.size() * sizeof(Header)));
  if (!file) headers.clear();
  return headers;
}

// The byte after the last one that the headers describe. `size` is that of the file: a table that
// lies beyond it is not read.
uint64_t DescribedEnd(std::ifstream& file, const Elf64_Ehdr& elf, uint64_t size) {
  uint64_t end = sizeof(elf);
  if (elf.e_phnum > 0 && elf.e_phentsize == sizeof(Elf64_Phdr)) {
    end = std::max(end, EndOf(elf.e_phoff, uint64_t{elf.e_phnum} * sizeof(Elf64_Phdr)));
  }
  if (elf.e_shnum > 0 && elf.e_shentsize == sizeof(Elf64_Shdr)) {
    end = std::max(end, EndOf(elf.e_shoff, uint64_t{elf.e_shnum} * sizeof(Elf64_Shdr)));
  }
  if (end > size) return end;
  if (elf.e_phentsize == sizeof(Elf64_Phdr)) {
    for (const Elf64_Phdr& segment : ReadTable<Elf64_Phdr>(file, elf.e_phoff, elf.e_phnum)) {
      end = std::max(end, EndOf(segment.p_offset, segment.p_filesz));
    }
  }
  if (elf.e_shentsize == sizeof(Elf64_Shdr)) {
    for (const Elf64_Shdr& section : ReadTable<Elf64_Shdr>(file, elf.e_shoff, elf.e_shnum)) {
      if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
      end = std::max(end, EndOf(section.sh_offset, section.sh_size));
    }
  }
  return end;
}

}  // namespace

Status CheckElfIsWhole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return OkStatus();
  const auto size = static_cast<uint64_t>(file.tellg());
  Elf64_Ehdr elf{};
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&elf), sizeof(elf));
  if (!file || std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) return OkStatus();
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_ident[EI_DATA] != ELFDATA2LSB) return OkStatus();
  const uint64_t end = DescribedEnd(file, elf, size);
  if (end <= size) return OkStatus();
  return MakeError(ErrorKind::kBackend, "plugin.load",
                   "cannot load plugin '{}': it has {} bytes, expected {}; the file is cut off, "
                   "install or build it again",
                   path.string(), size, end);
}

}  // namespace rullama
