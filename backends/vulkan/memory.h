// Kinds of Vulkan's memory, and blocks of it.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/gpu/block_memory.h"
#include "backends/vulkan/instance.h"

namespace rullama::vulkan {

enum class MemoryKind : uint8_t {
  kDevice,  // near the device; mapped where all of it can be
  kShared,  // near the device if possible, and always mapped: written by the host each step
  kHost,    // mapped and cached by the host: read back
};

// One allocation of the driver with a buffer over all of it.
class VulkanBlock final : public gpu::MemoryBlock {
 public:
  // Contents are undefined. Errors: RL_OUT_OF_MEMORY.
  VulkanBlock(const PhysicalDevice& physical, VkDevice device, uint64_t bytes, MemoryKind kind);
  ~VulkanBlock() override;

  [[nodiscard]] VkBuffer buffer() const { return buffer_; }
  [[nodiscard]] bool cached() const { return cached_; }  // whether the host reads it fast

 private:
  VulkanBlock(VkDevice device, uint64_t bytes) : MemoryBlock(bytes), device_(device) {}

  VkDevice device_;
  VkBuffer buffer_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  bool cached_ = false;
};

inline const VulkanBlock& BlockOf(const gpu::Allocation& memory) {
  return static_cast<const VulkanBlock&>(memory.block());
}

}  // namespace rullama::vulkan
