#include "backends/vulkan/memory.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/out_of_memory.h"
#include "backends/gpu/weights.h"

namespace rullama::vulkan {
namespace {

// Allocations begin at multiples of this: a cache line of GPUs, and the alignment of copies.
constexpr uint64_t kGranularity = 256;
// Drivers allow few thousand allocations, so small ones share a block. Larger ones have their own.
constexpr uint64_t kBlockBytes = uint64_t{64} << 20;

}  // namespace

MemoryBlock::~MemoryBlock() {
  if (buffer != VK_NULL_HANDLE) vkDestroyBuffer(device, buffer, nullptr);
  if (memory != VK_NULL_HANDLE) vkFreeMemory(device, memory, nullptr);
}

Memory::Memory(const PhysicalDevice& physical, VkDevice device)
    : physical_(physical), device_(device) {}
Memory::~Memory() = default;

// The first type that has what the residence needs, by preference.
uint32_t Memory::TypeFor(Residence residence, uint32_t allowed) const {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kMapped =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const VkPhysicalDeviceMemoryProperties& memory = physical_.capabilities.memory;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
      largest = std::max<uint64_t>(largest, memory.memoryHeaps[i].size);
    }
  }
  std::vector<VkMemoryPropertyFlags> wishes;
  if (residence == Residence::kDevice) wishes = {kLocal | kMapped, kLocal, 0};
  if (residence == Residence::kShared) wishes = {kLocal | kMapped, kMapped};
  if (residence == Residence::kHost) wishes = {kMapped | kCached, kMapped};
  for (const VkMemoryPropertyFlags wish : wishes) {
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryType& type = memory.memoryTypes[i];
      if ((allowed & (1u << i)) == 0 || (type.propertyFlags & wish) != wish) continue;
      // A window of some 256 MB onto the device is for what the host writes each step.
      const bool window = memory.memoryHeaps[type.heapIndex].size < largest;
      if (residence == Residence::kDevice && (wish & kMapped) != 0 && window) continue;
      return i;
    }
  }
  throw sdk::Error(RL_INTERNAL, "the driver offers no memory the host can write");
}

MemoryBlock& Memory::NewBlock(uint64_t bytes, Residence residence) {
  auto block = std::make_unique<MemoryBlock>(bytes);
  block->device = device_;
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  Check(vkCreateBuffer(device_, &info, nullptr, &block->buffer), "vkCreateBuffer");
  VkMemoryRequirements needs{};
  vkGetBufferMemoryRequirements(device_, block->buffer, &needs);
  VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                  VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size,
                                TypeFor(residence, needs.memoryTypeBits)};
  Check(vkAllocateMemory(device_, &allocate, nullptr, &block->memory), "vkAllocateMemory");
  Check(vkBindBufferMemory(device_, block->buffer, block->memory, 0), "vkBindBufferMemory");
  const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr,
                                          block->buffer};
  block->address = vkGetBufferDeviceAddress(device_, &address);
  const VkMemoryPropertyFlags properties =
      physical_.capabilities.memory.memoryTypes[allocate.memoryTypeIndex].propertyFlags;
  constexpr VkMemoryPropertyFlags kMapped =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  if ((properties & kMapped) == kMapped) {
    void* data = nullptr;
    Check(vkMapMemory(device_, block->memory, 0, VK_WHOLE_SIZE, 0, &data), "vkMapMemory");
    block->mapped = static_cast<std::byte*>(data);
    block->cached = (properties & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
  }
  ++allocations_;
  auto& blocks = blocks_[residence];
  blocks.push_back(std::move(block));
  return *blocks.back();
}

uint64_t MaxBufferBytes(uint64_t max_allocation) {
  return gpu::MaxPiece(0, max_allocation, kGranularity);
}

uint64_t Memory::max_piece() const {
  const auto& can = physical_.capabilities;
  return gpu::MaxPiece(can.weight_piece, can.max_allocation, kGranularity);
}

Allocation Memory::Allocate(uint64_t bytes, Residence residence) {
  const auto [total, free] = Instance::Memory(physical_);
  // Kernels read whole vectors of 16 bytes at the end of a row.
  const uint64_t size = bytes > total && residence != Residence::kHost
                            ? 0
                            : gpu::RoundUp(bytes, kGranularity) + kGranularity;
  const auto fail = [&, total = total, free = free](const std::string& why) {
    return gpu::NoRoom(bytes, total, free, why);
  };
  if (size < bytes || size == 0) throw fail("");
  for (const auto& block : blocks_[residence]) {
    if (const auto offset = block->free.Take(size)) return {block.get(), *offset, size};
  }
  if (size > physical_.capabilities.max_allocation) {
    throw fail("one allocation may have " + gpu::SizeText(physical_.capabilities.max_allocation));
  }
  try {
    MemoryBlock& block = NewBlock(std::max(size, kBlockBytes), residence);
    return {&block, *block.free.Take(size), size};
  } catch (const sdk::Error& error) {
    if (error.code() != RL_OUT_OF_MEMORY) throw;
    throw fail(error.what());
  }
}

}  // namespace rullama::vulkan
