#include "backends/vulkan/memory.h"

#include <algorithm>
#include <vector>

namespace rullama::vulkan {
namespace {

constexpr VkMemoryPropertyFlags kMapped =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

// The first type of memory that has what its kind needs, by preference.
uint32_t TypeFor(const VkPhysicalDeviceMemoryProperties& memory, MemoryKind kind,
                 uint32_t allowed) {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
      largest = std::max<uint64_t>(largest, memory.memoryHeaps[i].size);
    }
  }
  std::vector<VkMemoryPropertyFlags> wishes;
  if (kind == MemoryKind::kDevice) wishes = {kLocal | kMapped, kLocal, 0};
  if (kind == MemoryKind::kShared) wishes = {kLocal | kMapped, kMapped};
  if (kind == MemoryKind::kHost) wishes = {kMapped | kCached, kMapped};
  for (const VkMemoryPropertyFlags wish : wishes) {
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryType& type = memory.memoryTypes[i];
      if ((allowed & (1u << i)) == 0 || (type.propertyFlags & wish) != wish) continue;
      // A window of some 256 MB onto the device is for what the host writes each step.
      const bool window = memory.memoryHeaps[type.heapIndex].size < largest;
      if (kind == MemoryKind::kDevice && (wish & kMapped) != 0 && window) continue;
      return i;
    }
  }
  throw sdk::Error(RL_INTERNAL, "the driver offers no memory the host can write");
}

}  // namespace

VulkanBlock::~VulkanBlock() {
  if (buffer_ != VK_NULL_HANDLE) vkDestroyBuffer(device_, buffer_, nullptr);
  if (memory_ != VK_NULL_HANDLE) vkFreeMemory(device_, memory_, nullptr);
}

VulkanBlock::VulkanBlock(const PhysicalDevice& physical, VkDevice device, uint64_t bytes,
                         MemoryKind kind)
    : VulkanBlock(device, bytes) {
  const VkPhysicalDeviceMemoryProperties& all = physical.facts.memory;
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  Check(vkCreateBuffer(device_, &info, nullptr, &buffer_), "vkCreateBuffer");
  VkMemoryRequirements needs{};
  vkGetBufferMemoryRequirements(device_, buffer_, &needs);
  VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                  VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size,
                                TypeFor(all, kind, needs.memoryTypeBits)};
  Check(vkAllocateMemory(device_, &allocate, nullptr, &memory_), "vkAllocateMemory");
  Check(vkBindBufferMemory(device_, buffer_, memory_, 0), "vkBindBufferMemory");
  const VkBufferDeviceAddressInfo whole{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr,
                                        buffer_};
  address = vkGetBufferDeviceAddress(device_, &whole);
  const VkMemoryPropertyFlags properties = all.memoryTypes[allocate.memoryTypeIndex].propertyFlags;
  if ((properties & kMapped) == kMapped) {
    void* data = nullptr;
    Check(vkMapMemory(device_, memory_, 0, VK_WHOLE_SIZE, 0, &data), "vkMapMemory");
    mapped = static_cast<std::byte*>(data);
    cached_ = (properties & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
  }
}

}  // namespace rullama::vulkan
