// The memory of a plan besides the values of its graph: intermediate results and constants of
// kernels.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "backends/gpu/memory.h"

namespace rullama::gpu {

class ScratchPool {
 public:
  // `device` owns the memory and outlives the pool; the plan keeps the memory until it ends.
  explicit ScratchPool(PlanDevice& device) : device_(device) {}

  // Returns memory of its own for one intermediate result.
  Scratch New(uint64_t bytes);
  // Returns memory that may have held another intermediate result. Return it with GiveBack after
  // its last reader was appended to the dispatches.
  Scratch Take(uint64_t bytes);
  void GiveBack(const Scratch& scratch) { free_.emplace(scratch.bytes, scratch.address); }
  // Returns memory with these contents.
  DeviceAddress Constant(std::span<const std::byte> bytes);
  // Bytes allocated so far.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  PlanDevice& device_;
  std::multimap<uint64_t, DeviceAddress> free_;  // by size
  uint64_t bytes_ = 0;
};

}  // namespace rullama::gpu
