// What lowering has to know of a device's memory: addresses. They are numbers in one space of 64
// bits that 0 is not part of. Vulkan's are those shaders use; a device without such makes up its
// own and translates them where a kernel gets its arguments (Dispatch::pointers says where they
// are).
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/weights.h"

namespace rullama::gpu {

using DeviceAddress = uint64_t;

// Memory a dispatch touches.
struct Range {
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
  [[nodiscard]] bool Overlaps(const Range& other) const {
    return begin < other.end && other.begin < end;
  }
};

// Memory that several dispatches of a plan share.
struct Scratch {
  DeviceAddress address = 0;
  uint64_t bytes = 0;
};

// A buffer of the host's. Backends derive theirs, which own the memory.
class DeviceBuffer : public sdk::Buffer {
 public:
  [[nodiscard]] DeviceAddress address() const { return address_; }
  [[nodiscard]] uint64_t size() const { return size_; }

 protected:
  DeviceBuffer(DeviceAddress address, uint64_t size) : address_(address), size_(size) {}

 private:
  DeviceAddress address_;
  uint64_t size_;
};

// A weight in the layout of weights.h, in pieces of rows where one allocation cannot have all of
// them. Backends derive theirs, which own the memory.
class DeviceWeight : public sdk::Weight {
 public:
  struct Piece {
    WeightRows rows;
    DeviceAddress address;
  };
  [[nodiscard]] const WeightShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  // Of the first row.
  [[nodiscard]] DeviceAddress address() const { return pieces_.front().address; }
  // The bytes as in the file; they stay valid.
  [[nodiscard]] const std::byte* file() const { return file_; }

 protected:
  explicit DeviceWeight(const rl_weight_desc& desc)
      : shape_(ShapeOf(static_cast<DType>(desc.dtype), {desc.dims, desc.rank})),
        file_(static_cast<const std::byte*>(desc.data)) {}
  void AddPiece(const Piece& piece) { pieces_.push_back(piece); }

 private:
  WeightShape shape_;
  std::vector<Piece> pieces_;
  const std::byte* file_;
};

// Where the memory of a plan comes from, and what of the device its dispatches depend on.
class PlanDevice {
 public:
  virtual ~PlanDevice() = default;
  // Memory that lives as long as the plan; contents are undefined. Errors: RL_OUT_OF_MEMORY.
  virtual DeviceAddress NewMemory(uint64_t bytes) = 0;
  // Fills the beginning of such memory.
  virtual void Fill(DeviceAddress address, std::span<const std::byte> bytes) = 0;
  // Workgroups a dispatch may have.
  [[nodiscard]] virtual uint32_t MostGroups(uint32_t axis) const = 0;
  // Whether kernels may read addresses from memory; else all are arguments.
  [[nodiscard]] virtual bool FollowsPointers() const = 0;
};

}  // namespace rullama::gpu
