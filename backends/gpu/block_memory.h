// Device memory in large blocks: drivers allow few allocations, and each takes long, so small ones
// share a block. Larger ones have a block of their own.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "backends/gpu/free_ranges.h"
#include "backends/gpu/memory.h"

namespace rullama::gpu {

class Driver;

enum class Residence : uint8_t {
  kDevice,  // near the device
  kShared,  // host and device access it in every step; on devices without such memory, as kDevice
};

// One allocation of a driver and its free ranges. A driver's subclass holds and frees the memory.
class MemoryBlock {
 public:
  explicit MemoryBlock(uint64_t bytes) : free(bytes) {}
  virtual ~MemoryBlock() = default;
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  DeviceAddress address = 0;
  std::byte* mapped = nullptr;  // null: the host reaches it by copies only
  FreeRanges free;
};

// An owned range of a block, which outlives it; the destructor returns it to the block.
class Allocation {
 public:
  Allocation() = default;
  Allocation(MemoryBlock* block, uint64_t offset, uint64_t size)
      : block_(block), offset_(offset), size_(size) {}
  ~Allocation() {
    if (block_ != nullptr) block_->free.GiveBack(offset_, size_);
  }
  Allocation(Allocation&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)), offset_(other.offset_), size_(other.size_) {}
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(offset_, other.offset_);
    std::swap(size_, other.size_);
    return *this;
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  [[nodiscard]] const MemoryBlock& block() const { return *block_; }
  [[nodiscard]] DeviceAddress address() const { return block_->address + offset_; }
  [[nodiscard]] uint64_t offset() const { return offset_; }  // in the block
  [[nodiscard]] uint64_t size() const { return size_; }
  // Null if the host reaches it by copies only.
  [[nodiscard]] std::byte* mapped() const {
    return block_->mapped == nullptr ? nullptr : block_->mapped + offset_;
  }

 private:
  MemoryBlock* block_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t size_ = 0;
};

// The bytes of the largest buffer on a device whose driver allows allocations of `max_allocation`:
// the end of a block stays unused.
uint64_t MaxBufferBytes(uint64_t max_allocation);

class BlockMemory {
 public:
  // `weight_piece`: bytes that a piece of a weight may have, at most; 0: an allocation.
  BlockMemory(Driver& driver, uint64_t weight_piece);

  // Bytes that a piece of a weight may have.
  [[nodiscard]] uint64_t max_piece() const { return max_piece_; }
  // Contents are undefined. Errors: RL_OUT_OF_MEMORY says how much was asked for and is free.
  Allocation Allocate(uint64_t bytes, Residence residence = Residence::kDevice);

 private:
  Driver& driver_;
  uint64_t max_piece_;
  std::map<Residence, std::list<std::unique_ptr<MemoryBlock>>> blocks_;
};

}  // namespace rullama::gpu
