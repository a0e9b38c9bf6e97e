#include "engine/auto_settings.h"

#include <algorithm>

namespace rullama {
namespace {

// The part of the device's memory that `auto` leaves to workspaces of the driver and to others.
constexpr uint64_t kSparePart = 5;

bool IsGpu(const DeviceDescription& device) {
  return device.type == RL_DEVICE_GPU || device.type == RL_DEVICE_INTEGRATED_GPU;
}

// Bytes that may be used. A driver that does not report free memory is taken to have all of it.
uint64_t Budget(const DeviceDescription& device) {
  const uint64_t free_bytes = device.memory_free == 0 ? device.memory_total : device.memory_free;
  const uint64_t spare = device.memory_total / kSparePart;
  return free_bytes - std::min(free_bytes, spare);
}

}  // namespace

Result<DeviceSettings> ChooseForDevice(DeviceSettings settings, const AutoChoices& choices,
                                       const DeviceDescription& device, int64_t most_rows,
                                       const MemoryQuery& need) {
  if (choices.max_rows) settings.max_rows = std::min(kFewestAutoRows, most_rows);
  if (!IsGpu(device)) return settings;
  const uint64_t budget = Budget(device);
  const auto fits = [&](const DeviceSettings& asked) {
    return need(asked).map([budget](uint64_t bytes) { return bytes <= budget; });
  };
  if (choices.max_rows) {
    for (int64_t rows = kMostAutoRows; rows > kFewestAutoRows; rows /= 2) {
      // A step as long as the context is the longest of use.
      if (rows / 2 >= most_rows) continue;
      DeviceSettings longer = settings;
      longer.max_rows = std::min(rows, most_rows);
      RL_ASSIGN_OR_RETURN(const bool has_room, fits(longer));
      if (!has_room) continue;
      settings = std::move(longer);
      break;
    }
  }
  if (choices.host_weights) {
    DeviceSettings all = settings;
    all.host_weights.clear();
    RL_ASSIGN_OR_RETURN(const bool has_room, fits(all));
    if (has_room) settings = std::move(all);
  }
  return settings;
}

}  // namespace rullama
