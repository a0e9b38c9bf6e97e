// Device memory: ranges of large blocks, each of which is one buffer with an address of its own.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "backends/gpu/block_range.h"
#include "backends/vulkan/instance.h"

namespace rullama::vulkan {

enum class Residence : uint8_t {
  kDevice,  // near the device; mapped where all of it can be
  kShared,  // near the device if possible, and always mapped: written by the host each step
  kHost,    // mapped and cached by the host: read back
};

// One allocation of the driver with a buffer over all of it and its free ranges.
class MemoryBlock {
 public:
  VkDevice device = VK_NULL_HANDLE;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkDeviceAddress address = 0;
  std::byte* mapped = nullptr;
  bool cached = false;
  gpu::FreeRanges free;

  explicit MemoryBlock(uint64_t bytes) : free(bytes) {}
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;
  ~MemoryBlock();
};

class Allocation : public gpu::BlockRange<MemoryBlock> {
 public:
  using BlockRange::BlockRange;
  [[nodiscard]] VkBuffer buffer() const { return block().buffer; }
  // Null if the host cannot see it.
  [[nodiscard]] std::byte* mapped() const {
    return block().mapped == nullptr ? nullptr : block().mapped + offset();
  }
  [[nodiscard]] bool cached() const { return block().cached; }  // whether the host reads it fast
};

// The bytes of the largest allocation of Memory on a device that allows so many in one of its own:
// the end of a block stays unused.
uint64_t MaxBufferBytes(uint64_t max_allocation);

class Memory {
 public:
  Memory(const PhysicalDevice& physical, VkDevice device);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Bytes that a piece of a weight may have.
  [[nodiscard]] uint64_t max_piece() const;
  // Contents are undefined. Errors: RL_OUT_OF_MEMORY says how much was asked for and is free.
  Allocation Allocate(uint64_t bytes, Residence residence);
  [[nodiscard]] uint64_t allocations() const { return allocations_; }

 private:
  [[nodiscard]] uint32_t TypeFor(Residence residence, uint32_t allowed) const;
  MemoryBlock& NewBlock(uint64_t bytes, Residence residence);

  const PhysicalDevice& physical_;
  VkDevice device_;
  std::map<Residence, std::list<std::unique_ptr<MemoryBlock>>> blocks_;
  uint64_t allocations_ = 0;  // blocks obtained from the driver
};

}  // namespace rullama::vulkan
