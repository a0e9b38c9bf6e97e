// Memory that ends where a page begins that nobody may touch, so that a kernel which reads or
// writes beyond the end crashes, as it would with the last tensor of a file. Handlers of signals
// learn from here whose end it was.
//
// Ownership: unmaps its pages. Thread safety: one thread at a time, but for DescribeFault().
// Errors: kOutOfMemory, id "conformance.guard".
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace rullama::conformance {

class GuardedMemory {
 public:
  // At least `size` bytes, which is not 0, aligned as the data of a tensor in a file: the guard
  // begins after the padding to that alignment. `name` is for messages.
  static Result<GuardedMemory> Create(size_t size, std::string_view name);

  GuardedMemory() = default;
  GuardedMemory(GuardedMemory&& other) noexcept { *this = std::move(other); }
  GuardedMemory& operator=(GuardedMemory&& other) noexcept;
  ~GuardedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // The last bytes before the guard, aligned only as far as `size` allows. At most bytes().size().
  [[nodiscard]] std::span<std::byte> Last(size_t size) const;
  // From now on a write to the bytes crashes, too.
  void Seal();

 private:
  void Release();

  std::byte* mapping_ = nullptr;
  size_t mapped_ = 0;  // with the guard
  std::span<std::byte> bytes_;
  size_t entry_ = 0;  // of the table that DescribeFault() reads
};

// A text such as "read or wrote 3 bytes beyond the end of weight 'w'" if the address of a fault
// belongs to guarded memory, else an empty one. Valid while the memory exists. Async-signal-safe.
struct FaultText {
  size_t bytes = 0;       // beyond the end; 0: the bytes themselves, which are read only
  std::string_view name;  // empty: the address is elsewhere
};
FaultText DescribeFault(const void* address);

}  // namespace rullama::conformance
