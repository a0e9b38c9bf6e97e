// What lives in the device's memory: buffers, weights, and what a plan needs for itself.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <vector>

#include "backends/gpu/memory.h"
#include "backends/opencl/gpu.h"

namespace rullama::opencl {

class OpenClBuffer final : public gpu::DeviceBuffer {
 public:
  OpenClBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage);
  ~OpenClBuffer() override;
  [[nodiscard]] const Allocation& memory() const { return memory_; }

 private:
  OpenClBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage, Allocation memory);

  Gpu& gpu_;
  Allocation memory_;
};

class OpenClWeight final : public gpu::DeviceWeight {
 public:
  OpenClWeight(Gpu& gpu, const rl_weight_desc& desc);
  ~OpenClWeight() override;

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
  // A kernel may touch no buffer that is not among its arguments.
  [[nodiscard]] bool FollowsPointers() const override { return false; }

  [[nodiscard]] size_t allocations() const { return memory_.size(); }

 private:
  Gpu& gpu_;
  std::vector<Allocation> memory_;
};

}  // namespace rullama::opencl
