// Owners of device memory for all APIs: buffers, weights, and the memory of a plan. `Gpu` has the
// members that device.h requires and
//   NewMemory(bytes, shared)  an allocation; `shared`: host and device access it in every step
//   FillZero(allocation), WaitQuietly(), MaxGroups(axis)
//   kFollowsPointers          whether kernels may read addresses from memory
// and its allocations have address() and mapped(), null if the host does not see them.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backends/gpu/memory.h"

namespace rullama::gpu {

template <typename Gpu>
using AllocationOf = decltype(std::declval<Gpu&>().NewMemory(0, false));

template <typename Gpu>
class OwnedBuffer final : public DeviceBuffer {
 public:
  OwnedBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage)
      : OwnedBuffer(gpu, bytes, usage, gpu.NewMemory(bytes, usage == RL_BUFFER_IO)) {}
  ~OwnedBuffer() override { gpu_.WaitQuietly(); }
  [[nodiscard]] const AllocationOf<Gpu>& memory() const { return memory_; }

 private:
  OwnedBuffer(Gpu& gpu, uint64_t bytes, rl_buffer_usage usage, AllocationOf<Gpu> memory)
      : DeviceBuffer(memory.address(), bytes), gpu_(gpu), memory_(std::move(memory)) {
    if (usage == RL_BUFFER_STATE) gpu_.FillZero(memory_);
  }

  Gpu& gpu_;
  AllocationOf<Gpu> memory_;
};

template <typename Gpu>
class OwnedWeight final : public DeviceWeight {
 public:
  OwnedWeight(Gpu& gpu, const rl_weight_desc& desc) : DeviceWeight(desc), gpu_(gpu) {
    gpu_.Wait();  // the host writes to mapped memory that running work may still use
    for (const WeightRows& rows : PiecesOf(shape(), gpu_.memory().max_piece() - kWeightSlack)) {
      WeightShape part = shape();
      part.rows = rows.count;
      const auto& memory = memory_.emplace_back(
          gpu_.NewMemory(std::max<uint64_t>(part.bytes(), 1) + kWeightSlack, false));
      AddPiece({rows, memory.address()});
      RepackAll(part, file() + rows.first * part.file_row, memory.mapped(),
                [&](uint64_t offset, std::span<const std::byte> bytes) {
                  gpu_.Write(memory, offset, bytes);
                });
    }
  }
  ~OwnedWeight() override { gpu_.WaitQuietly(); }

 private:
  Gpu& gpu_;
  std::vector<AllocationOf<Gpu>> memory_;  // of each piece
};

template <typename Gpu>
class PlanMemory final : public PlanDevice {
 public:
  explicit PlanMemory(Gpu& gpu) : gpu_(gpu) {}
  DeviceAddress NewMemory(uint64_t bytes) override {
    return memory_.emplace_back(gpu_.NewMemory(bytes, false)).address();
  }
  void Fill(DeviceAddress address, std::span<const std::byte> bytes) override {
    gpu_.Write(*std::ranges::find(memory_, address, &AllocationOf<Gpu>::address), 0, bytes);
  }
  [[nodiscard]] uint32_t MaxGroups(uint32_t axis) const override { return gpu_.MaxGroups(axis); }
  [[nodiscard]] bool FollowsPointers() const override { return Gpu::kFollowsPointers; }

  [[nodiscard]] size_t allocations() const { return memory_.size(); }

 private:
  Gpu& gpu_;
  std::vector<AllocationOf<Gpu>> memory_;
};

}  // namespace rullama::gpu
