// A graph compiled on a device, each value in a buffer of its own between two guard zones, so that
// writes outside the values are found. What the host passes, weights above all, ends at protected
// pages, so that reads beyond it crash. Not thread-safe. Errors: those of Device; id
// "conformance.memory" for memory that changed or did not.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/case.h"
#include "conformance/guarded_memory.h"
#include "core/plugin/device.h"

namespace rullama::conformance {

class Program {
 public:
  // Constants are taken from the case, and it outlives this object. `observed`: every value is
  // marked as read by the host.
  static Result<std::unique_ptr<Program>> Create(Device& device, const Case& test,
                                                 bool observed = false,
                                                 RecordTimes record_times = RecordTimes::kNo);

  // Fills results and transients with this byte, so that unwritten elements are found.
  Status Poison(uint8_t byte);
  // Writes the bytes of an input or a state, from memory that ends at a protected page.
  Status Bind(std::string_view name, std::span<const std::byte> bytes);
  // All inputs and states of the case.
  Status BindAll(const Case& test);
  Status Run(const Extents& extents);
  // A value, or a state by its first name, at these extents.
  Result<Bytes> Read(std::string_view name, const Extents& extents);
  // Checks that the inputs are unchanged: an op only reads them.
  Status CheckInputs(const Case& test);
  // Checks that all guard zones are unchanged.
  Status CheckGuards();
  // The records of the last Run().
  Status ReadTimes(const std::function<void(const OpTime&)>& sink) {
    return device_.ReadTimes(plan_, graph_, sink);
  }
  Result<rl_plan_stats> Stats() { return device_.Stats(plan_); }

 private:
  struct Place {
    DeviceBuffer buffer;
    uint64_t bytes = 0;
  };
  Program(Device& device, const Graph& graph) : device_(device), graph_(graph) {}
  Status Allocate(const Case& test, bool observed);
  Status FillGuards(const Place& place);

  // The bytes of a constant, which stay where they are.
  Result<std::span<const std::byte>> Constant(const Case& test, const std::string& source);
  // The last `size` bytes before a protected page.
  Result<std::span<std::byte>> Staging(size_t size);

  Device& device_;
  const Graph& graph_;
  uint64_t guard_ = 0;                              // bytes before and after each value
  std::map<std::string, GuardedMemory> constants_;  // by source, for weights_
  std::vector<DeviceWeight> weights_;
  std::map<ValueId, Place> places_;  // by value; states by their first version
  std::vector<Storage> storage_;
  GuardedMemory staging_;
  DevicePlan plan_;
};

}  // namespace rullama::conformance
