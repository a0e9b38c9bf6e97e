// What lives in the device's memory: buffers, weights, and what a plan needs for itself.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <vector>

#include "backends/gpu/memory.h"
#include "backends/vulkan/gpu.h"

namespace rullama::vulkan {

class VulkanBuffer final : public gpu::DeviceBuffer {
 public:
  VulkanBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage);
  ~VulkanBuffer() override;
  [[nodiscard]] const Allocation& memory() const { return memory_; }

 private:
  VulkanBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage, Allocation memory);

  Gpu& gpu_;
  Allocation memory_;
};

class VulkanWeight final : public gpu::DeviceWeight {
 public:
  VulkanWeight(Gpu& gpu, const rl_weight_desc& desc);
  ~VulkanWeight() override;

 private:
  Gpu& gpu_;
  std::vector<Allocation> memory_;  // of each piece
};

class PlanMemory final : public gpu::PlanDevice {
 public:
  explicit PlanMemory(Gpu& gpu) : gpu_(gpu) {}
  gpu::DeviceAddress NewMemory(uint64_t bytes) override;
  void Fill(gpu::DeviceAddress address, std::span<const std::byte> bytes) override;
  [[nodiscard]] uint32_t MostGroups(uint32_t axis) const override;
  [[nodiscard]] bool FollowsPointers() const override { return true; }

  [[nodiscard]] size_t allocations() const { return memory_.size(); }

 private:
  Gpu& gpu_;
  std::vector<Allocation> memory_;
};

}  // namespace rullama::vulkan
