// Owners of device memory on behalf of the host: buffers, weights, and the memory of a plan.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/block_memory.h"
#include "backends/gpu/driver.h"
#include "backends/gpu/memory.h"

namespace rullama::gpu {

class OwnedBuffer final : public DeviceBuffer {
 public:
  OwnedBuffer(Driver& driver, BlockMemory& blocks, uint64_t bytes, rl_buffer_usage usage);
  ~OwnedBuffer() override { driver_.WaitQuietly(); }
  [[nodiscard]] const Allocation& memory() const { return memory_; }

 private:
  OwnedBuffer(Driver& driver, uint64_t bytes, rl_buffer_usage usage, Allocation memory);

  Driver& driver_;
  Allocation memory_;
};

class OwnedWeight final : public DeviceWeight {
 public:
  OwnedWeight(Driver& driver, BlockMemory& blocks, const rl_weight_desc& desc);
  ~OwnedWeight() override { driver_.WaitQuietly(); }

 private:
  Driver& driver_;
  std::vector<Allocation> memory_;  // of each piece
};

class PlanMemory final : public PlanDevice {
 public:
  PlanMemory(Driver& driver, BlockMemory& blocks) : driver_(driver), blocks_(blocks) {}
  DeviceAddress NewMemory(uint64_t bytes) override;
  void Fill(DeviceAddress address, std::span<const std::byte> bytes) override;

  [[nodiscard]] size_t allocations() const { return memory_.size(); }

 private:
  Driver& driver_;
  BlockMemory& blocks_;
  std::vector<Allocation> memory_;
};

}  // namespace rullama::gpu
