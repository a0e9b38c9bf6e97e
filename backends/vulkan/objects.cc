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

VulkanWeight::VulkanWeight(Gpu& gpu, const rl_weight_desc& desc) : DeviceWeight(desc), gpu_(gpu) {
  gpu_.Wait();
  MakePieces(
      gpu_.memory().most_piece(),
      [&](uint64_t bytes) -> Allocation& {
        return memory_.emplace_back(gpu_.memory().Allocate(bytes, Residence::kDevice));
      },
      [&](Allocation& memory, const gpu::WeightShape& part, const std::byte* file) {
        gpu::RepackAll(part, file, memory.mapped(),
                       [&](uint64_t offset, std::span<const std::byte> rows) {
                         gpu_.Write(memory, offset, rows);
                       });
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
