#include "backends/vulkan/objects.h"

#include <algorithm>

namespace rullama::vulkan {

VulkanBuffer::VulkanBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage)
    : VulkanBuffer(gpu, bytes, usage,
                   gpu.memory().Allocate(
                       bytes, usage == RL_BUFFER_IO ? Residence::kShared : Residence::kDevice)) {}

VulkanBuffer::VulkanBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage, Allocation memory)
    : DeviceBuffer(memory.address(), bytes), gpu_(gpu), memory_(std::move(memory)) {
  if (usage == RL_BUFFER_STATE) gpu_.FillZero(memory_);
}

VulkanBuffer::~VulkanBuffer() { gpu_.WaitQuietly(); }

VulkanWeight::VulkanWeight(Gpu& gpu, const rl_weight_desc& desc)
    : DeviceWeight(desc),
      gpu_(gpu),
      memory_(gpu.memory().Allocate(std::max<uint64_t>(shape().bytes(), 1) + gpu::kWeightSlack,
                                    Residence::kDevice)) {
  set_address(memory_.address());
  gpu_.Wait();
  gpu::RepackAll(shape(), file(), memory_.mapped(),
                 [this](uint64_t offset, std::span<const std::byte> rows) {
                   gpu_.Write(memory_, offset, rows);
                 });
}

VulkanWeight::~VulkanWeight() { gpu_.WaitQuietly(); }

gpu::DeviceAddress PlanMemory::NewMemory(uint64_t bytes) {
  memory_.push_back(gpu_.memory().Allocate(bytes, Residence::kDevice));
  return memory_.back().address();
}

void PlanMemory::Fill(gpu::DeviceAddress address, std::span<const std::byte> bytes) {
  gpu_.Write(*std::ranges::find(memory_, address, &Allocation::address), 0, bytes);
}

uint32_t PlanMemory::MostGroups(uint32_t axis) const {
  return gpu_.capabilities().properties.limits.maxComputeWorkGroupCount[axis];
}

}  // namespace rullama::vulkan
