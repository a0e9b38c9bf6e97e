#include "engine/loading/auto_settings.h"

#include <algorithm>

namespace rullama {
namespace {

// The part of the device's memory that `auto` leaves to workspaces of the driver and to others.
constexpr uint64_t kSparePart = 5;

}  // namespace

bool IsGpu(const DeviceDescription& device) {
  return device.type == RL_DEVICE_GPU || device.type == RL_DEVICE_INTEGRATED_GPU;
}

uint64_t MemoryBudget(const DeviceDescription& device) {
  const uint64_t free_bytes = device.memory_free == 0 ? device.memory_total : device.memory_free;
  const uint64_t spare = device.memory_total / kSparePart;
  return free_bytes - std::min(free_bytes, spare);
}

Result<DeviceSettings> ChooseForDevices(DeviceSettings settings, const AutoChoices& choices,
                                        std::span<const DeviceDescription> devices, int64_t max_t,
                                        const MemoryQuery& need) {
  if (choices.max_t) settings.max_t = std::min(kMinAutoRows, max_t);
  if (!std::ranges::any_of(devices, IsGpu)) return settings;
  const auto fits = [&](const DeviceSettings& asked) -> Result<bool> {
    RL_ASSIGN_OR_RETURN(const std::vector<uint64_t> bytes, need(asked));
    for (size_t i = 0; i < devices.size(); ++i) {
      if (IsGpu(devices[i]) && bytes[i] > MemoryBudget(devices[i])) return false;
    }
    return true;
  };
  if (choices.max_t) {
    for (int64_t rows = kMaxAutoRows; rows > kMinAutoRows; rows /= 2) {
      // A step as long as the context is the longest of use.
      if (rows / 2 >= max_t) continue;
      DeviceSettings longer = settings;
      longer.max_t = std::min(rows, max_t);
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
