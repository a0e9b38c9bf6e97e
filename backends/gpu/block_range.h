// An owned range of a block of memory; the destructor returns it to the block. `Block` has `free`,
// a FreeRanges that outlives the range, and `address`, the start of the block.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <utility>

#include "backends/gpu/free_ranges.h"
#include "backends/gpu/memory.h"

namespace rullama::gpu {

template <typename Block>
class BlockRange {
 public:
  BlockRange() = default;
  BlockRange(Block* block, uint64_t offset, uint64_t size)
      : block_(block), offset_(offset), size_(size) {}
  ~BlockRange() {
    if (block_ != nullptr) block_->free.GiveBack(offset_, size_);
  }
  BlockRange(BlockRange&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)), offset_(other.offset_), size_(other.size_) {}
  BlockRange& operator=(BlockRange&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(offset_, other.offset_);
    std::swap(size_, other.size_);
    return *this;
  }
  BlockRange(const BlockRange&) = delete;
  BlockRange& operator=(const BlockRange&) = delete;

  [[nodiscard]] DeviceAddress address() const { return block_->address + offset_; }
  [[nodiscard]] uint64_t offset() const { return offset_; }  // in the block
  [[nodiscard]] uint64_t size() const { return size_; }

 protected:
  [[nodiscard]] const Block& block() const { return *block_; }

 private:
  Block* block_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t size_ = 0;
};

}  // namespace rullama::gpu
