#include "conformance/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(0))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(0))
#endif

namespace rullama::conformance {
namespace {

constexpr size_t kAlignment = 32;  // of tensors in GGUF files
// Padding reads as NaN, so that a sum that takes it in is seen.
constexpr std::byte kPadding{0xFF};

// The ranges that a handler may read; an entry with `end` 0 is free.
struct Entry {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // of the bytes; the guard begins less than kAlignment later
  std::array<char, 64> name{};
  std::atomic<size_t> name_size{0};
};
constexpr size_t kEntries = 64;  // a graph has fewer; without one, a fault has no name
std::array<Entry, kEntries> entries;

size_t PageSize() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

size_t RoundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// Returns kEntries if all are taken.
size_t TakeEntry(std::span<const std::byte> bytes, std::string_view name) {
  for (size_t i = 0; i < kEntries; ++i) {
    Entry& entry = entries[i];
    if (entry.end.load() != 0) continue;
    const size_t size = std::min(name.size(), entry.name.size());
    std::copy_n(name.begin(), size, entry.name.begin());
    entry.name_size.store(size);
    entry.begin.store(reinterpret_cast<uintptr_t>(bytes.data()));
    entry.end.store(reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()));
    return i;
  }
  return kEntries;
}

}  // namespace

Result<GuardedMemory> GuardedMemory::Create(size_t size, std::string_view name) {
  const size_t page = PageSize(), padded = RoundUp(size, kAlignment);
  const size_t usable = RoundUp(padded, page);
  GuardedMemory memory;
  void* mapping =
      ::mmap(nullptr, usable + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED || ::mprotect(mapping, usable, PROT_READ | PROT_WRITE) != 0) {
    if (mapping != MAP_FAILED) ::munmap(mapping, usable + page);
    return MakeError(ErrorKind::kOutOfMemory, "conformance.guard",
                     "no memory for {} of {} bytes before a guard page: {}", name, size,
                     std::strerror(errno));
  }
  memory.mapping_ = static_cast<std::byte*>(mapping);
  memory.mapped_ = usable + page;
  std::byte* begin = memory.mapping_ + usable - padded;
  memory.bytes_ = {begin, size};
  std::fill(begin + size, begin + padded, kPadding);
  ASAN_POISON_MEMORY_REGION(begin + size, padded - size);
  memory.entry_ = TakeEntry(memory.bytes_, name);
  return memory;
}

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  if (this == &other) return *this;
  Release();
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapped_ = other.mapped_;
  bytes_ = std::exchange(other.bytes_, {});
  entry_ = other.entry_;
  return *this;
}

GuardedMemory::~GuardedMemory() { Release(); }

void GuardedMemory::Release() {
  if (mapping_ == nullptr) return;
  if (entry_ < kEntries) entries[entry_].end.store(0);
  ASAN_UNPOISON_MEMORY_REGION(mapping_, mapped_ - PageSize());
  ::munmap(std::exchange(mapping_, nullptr), mapped_);
}

std::span<std::byte> GuardedMemory::Last(size_t size) const { return bytes_.last(size); }

void GuardedMemory::Seal() { ::mprotect(mapping_, mapped_ - PageSize(), PROT_READ); }

FaultText DescribeFault(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  constexpr uintptr_t kGuard = 4096;  // the smallest page
  for (const Entry& entry : entries) {
    const uintptr_t begin = entry.begin.load(), end = entry.end.load();
    if (end == 0 || at < begin || at >= end + kAlignment + kGuard) continue;
    return {at < end ? 0 : at - end + 1, {entry.name.data(), entry.name_size.load()}};
  }
  return {};
}

}  // namespace rullama::conformance
