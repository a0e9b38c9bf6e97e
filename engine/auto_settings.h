// What `auto` of context.prefill_chunk and placement.host_weights means on a device. Pure
// functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/plugin/device.h"

namespace rullama {

// Rows of a step on a processor, and the fewest that `auto` chooses.
inline constexpr int64_t kFewestAutoRows = 512;
inline constexpr int64_t kMostAutoRows = 2048;  // a power of two times kFewestAutoRows

// Settings that can be left to the device.
struct DeviceSettings {
  int64_t max_rows = kFewestAutoRows;          // of a step
  std::vector<std::string> host_weights = {};  // name patterns of tables that stay on the host

  friend bool operator==(const DeviceSettings&, const DeviceSettings&) = default;
};

// Which settings `auto` decides; the others keep the value that they have.
struct AutoChoices {
  bool max_rows = false;
  bool host_weights = false;
};

// Bytes that a session with these settings allocates on the device.
using MemoryQuery = std::function<Result<uint64_t>(const DeviceSettings&)>;

// `settings` with the choices of `auto` for the device. A GPU gets the largest step that leaves a
// fifth of its memory free, then the tables if that leaves as much; any other device gets steps of
// kFewestAutoRows and no table. `most_rows` is the longest step that can be used. Errors: those of
// `need`, which is asked about GPUs only.
Result<DeviceSettings> ChooseForDevice(DeviceSettings settings, const AutoChoices& choices,
                                       const DeviceDescription& device, int64_t most_rows,
                                       const MemoryQuery& need);

}  // namespace rullama
