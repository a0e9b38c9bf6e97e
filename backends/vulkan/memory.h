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

#include "backends/vulkan/instance.h"

namespace rullama::vulkan {

enum class Residence : uint8_t {
  kDevice,  // near the device; mapped where all of it can be
  kShared,  // near the device if possible, and always mapped: written by the host each step
  kHost,    // mapped and cached by the host: read back
};

class MemoryBlock;

// A range of a block. Returned to its block by the owner's destruction.
class Allocation {
 public:
  Allocation() = default;
  Allocation(MemoryBlock* block, uint64_t offset, uint64_t size)
      : block_(block), offset_(offset), size_(size) {}
  ~Allocation();
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  [[nodiscard]] VkDeviceAddress address() const;
  [[nodiscard]] VkBuffer buffer() const;
  [[nodiscard]] uint64_t offset() const { return offset_; }  // in the buffer
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] std::byte* mapped() const;  // null if the host cannot see it
  [[nodiscard]] bool cached() const;        // whether the host reads it fast

 private:
  MemoryBlock* block_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t size_ = 0;
};

class Memory {
 public:
  Memory(const PhysicalDevice& physical, VkDevice device);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

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
