// The inputs of a session's graphs that are not part of a step's rows (seed, biases). A value is
// set once and stays until it is set again. A step writes it to the buffers of its plan that hold
// another one.
//
// Steps of different lanes (session.h) share the buffers, so an input may have a value of its own
// for each lane. Steps outside lanes, and lanes without an own value, have the common one.
//
// Ownership: owns the values; borrows devices and buffers. Thread safety: Set() on one thread at a
// time, and not for a value of a step that runs; WriteTo() on any thread, for one target at a time.
// Errors: session.internal for a name or a size that no graph has; those of the devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/plugin/device.h"

namespace rullama {

// The lane of a step; none: the step runs outside lanes.
using StepLane = std::optional<size_t>;

struct KeptInput {
  struct Value {
    std::vector<std::byte> bytes;
    uint64_t version = 0;  // differs between all values of a session; 0: not set
  };
  std::string name;
  TensorType type;
  Value common;
  std::vector<Value> of_lane;

  [[nodiscard]] const Value& For(StepLane lane) const {
    return lane && of_lane[*lane].version > 0 ? of_lane[*lane] : common;
  }
};

// A buffer that plans read an input from.
struct KeptTarget {
  const DeviceBuffer* buffer = nullptr;
  uint64_t version = 0;  // of the value it holds; 0: of none
};

class KeptInputs {
 public:
  // `largest`: the largest step, which bounds the size of values with T or R rows.
  explicit KeptInputs(Extents largest, size_t lanes = 0) : largest_(largest), lanes_(lanes) {}

  // Adds the inputs of a graph. Called for all graphs before anything else.
  void Declare(const Graph& graph);

  // Sets an input. `data` has the size of the input's type; if the type depends on the size of the
  // step, at most its size at the largest step. Setting a value that is kept already changes
  // nothing.
  Status Set(std::string_view name, std::span<const std::byte> data, StepLane lane = {});

  // The input of this name, or null. The address is stable.
  [[nodiscard]] const KeptInput* Find(std::string_view name) const;

  // The target that stands for this buffer. The address is stable.
  KeptTarget& TargetOf(const DeviceBuffer& buffer);

  // Writes a value to a target on the device, unless it is not set or there already.
  static Status WriteTo(KeptTarget& target, Device& device, const KeptInput::Value& value);

 private:
  Extents largest_;
  size_t lanes_;
  std::vector<KeptInput> inputs_;
  std::deque<KeptTarget> targets_;
  uint64_t versions_ = 0;
};

}  // namespace rullama
