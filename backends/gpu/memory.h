// Device memory as lowering sees it: 64-bit addresses, of which 0 is null. Drivers use the
// addresses that kernels see. A driver without them invents addresses and translates those in a
// kernel's arguments, which Dispatch::pointers locates.
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

// A range of memory that a dispatch reads or writes.
struct Range {
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
  [[nodiscard]] bool Overlaps(const Range& other) const {
    return begin < other.end && other.begin < end;
  }
};

// Temporary memory of a plan.
struct Scratch {
  DeviceAddress address = 0;
  uint64_t bytes = 0;
};

// A buffer of the host. The subclass (device_objects.h) owns the memory.
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

// A weight in the layout of weights.h. A weight larger than one allocation is split by rows into
// pieces. The subclass (device_objects.h) owns the memory.
class DeviceWeight : public sdk::Weight {
 public:
  struct Piece {
    WeightRows rows;
    DeviceAddress address;
  };
  [[nodiscard]] const WeightShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  // The address of the first row.
  [[nodiscard]] DeviceAddress address() const { return pieces_.front().address; }
  // The numbers of a vector in f32, which plans may read; empty for others. The file's bytes are
  // the host's, which may let go of them once the weight is created.
  [[nodiscard]] std::span<const std::byte> numbers() const { return numbers_; }

 protected:
  explicit DeviceWeight(const rl_weight_desc& desc)
      : shape_(ShapeOf(static_cast<DType>(desc.dtype), {desc.dims, desc.rank})),
        numbers_(NumbersOf(desc)) {}
  void AddPiece(const Piece& piece) { pieces_.push_back(piece); }

 private:
  static std::vector<std::byte> NumbersOf(const rl_weight_desc& desc) {
    const auto* data = static_cast<const std::byte*>(desc.data);
    const bool kept =
        data != nullptr && desc.rank == 1 && static_cast<DType>(desc.dtype) == DType::kF32;
    if (!kept) return {};
    return {data, data + static_cast<size_t>(desc.bytes)};
  }

  WeightShape shape_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> numbers_;
};

// Allocates the memory of a plan.
class PlanDevice {
 public:
  virtual ~PlanDevice() = default;
  // Memory that lives as long as the plan; contents are undefined. Errors: RL_OUT_OF_MEMORY.
  virtual DeviceAddress NewMemory(uint64_t bytes) = 0;
  // Fills the beginning of such memory.
  virtual void Fill(DeviceAddress address, std::span<const std::byte> bytes) = 0;
};

}  // namespace rullama::gpu
