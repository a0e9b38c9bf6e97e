// Values of the `auto` settings context.prefill_chunk and placement.host_weights, by the devices of
// a model. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/plugin/device.h"

namespace rullama {

// Rows of a step on a processor, and the fewest that `auto` chooses.
inline constexpr int64_t kMinAutoRows = 512;
inline constexpr int64_t kMaxAutoRows = 2048;  // a power of two times kMinAutoRows

// Settings that can be left to the device.
struct DeviceSettings {
  int64_t max_t = kMinAutoRows;                // of a step
  std::vector<std::string> host_weights = {};  // name patterns of tables that stay on the host

  friend bool operator==(const DeviceSettings&, const DeviceSettings&) = default;
};

// Which settings `auto` decides; the others keep the value that they have.
struct AutoChoices {
  bool max_t = false;
  bool host_weights = false;
};

[[nodiscard]] bool IsGpu(const DeviceDescription& device);

// Bytes of the device's memory that `auto` uses: the free ones less a fifth of all. A driver that
// does not report free memory is taken to have all of it.
[[nodiscard]] uint64_t MemoryBudget(const DeviceDescription& device);

// Bytes that a session with these settings allocates on each device.
using MemoryQuery = std::function<Result<std::vector<uint64_t>>(const DeviceSettings&)>;

// `settings` with the choices of `auto` for the devices that share a model. GPUs get the largest
// step that leaves a fifth of the memory of each of them free, then the tables if that leaves as
// much; without a GPU there are steps of kMinAutoRows and no table. `max_t` is the longest
// step that can be used. Errors: those of `need`, which is asked about GPUs only.
Result<DeviceSettings> ChooseForDevices(DeviceSettings settings, const AutoChoices& choices,
                                        std::span<const DeviceDescription> devices, int64_t max_t,
                                        const MemoryQuery& need);

}  // namespace rullama
