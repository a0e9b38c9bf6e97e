// The addresses of the values of a graph in the memory of a device.
//
// Thread safety: none.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <vector>

#include "backends/gpu/memory.h"
#include "backends/gpu/plan_steps.h"
#include "backends/gpu/scratch_pool.h"

namespace rullama::gpu {

class AddressMap {
 public:
  // Values with a buffer lie in it, constants in their DeviceWeight. With few rows, private values
  // get memory of their own from `scratch` (LeaveTransientsUnaliased).
  AddressMap(const sdk::GraphView& graph, const PlanSteps& steps, ScratchPool& scratch);

  [[nodiscard]] Range RangeOf(uint32_t value) const { return ranges_[value]; }
  // Null for RL_NO_VALUE.
  [[nodiscard]] DeviceAddress AddressOf(uint32_t value) const {
    return value == RL_NO_VALUE ? 0 : ranges_[value].begin;
  }
  // Places a result in the operand's memory, `offset` bytes into it.
  void Alias(uint32_t result, uint32_t operand, uint64_t offset);

 private:
  const sdk::GraphView& graph_;
  std::vector<Range> ranges_;  // by value
};

}  // namespace rullama::gpu
