// The inputs of a session's graphs that are no part of a step's rows (seed, biases). A value is set
// once and stays until it is set again; it is copied to the buffers of all plans that read it.
//
// Ownership: owns the values; borrows devices and buffers. Thread safety: one thread at a time.
// Errors: session.internal for a name or a size that no graph has; those of the devices.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/plugin/device.h"

namespace rullama {

struct KeptInput {
  struct Target {
    Device* device = nullptr;
    const DeviceBuffer* buffer = nullptr;
  };
  std::string name;
  TensorType type;
  std::vector<std::byte> bytes;  // empty until set
  std::vector<Target> targets;
};

class KeptInputs {
 public:
  // `largest`: the largest step, which bounds the size of values with T or R rows.
  explicit KeptInputs(Extents largest) : largest_(largest) {}

  // Adds the inputs of a graph. Called for all graphs before anything else.
  void Declare(const Graph& graph);

  // Sets an input and writes it to its targets. `data` has the size of the input's type; if the
  // type depends on the size of the step, at most its size at the largest step. A value that is
  // kept already is not written again. After an error the input is not set.
  Status Set(std::string_view name, std::span<const std::byte> data);

  // The input of this name, or null. The address is stable.
  [[nodiscard]] const KeptInput* Find(std::string_view name) const;

  // Adds a buffer to which the value is written now, if it is set, and whenever it is set again.
  Status AddTarget(const KeptInput& input, Device& device, const DeviceBuffer& buffer);

 private:
  Extents largest_;
  std::vector<KeptInput> inputs_;
};

}  // namespace rullama
