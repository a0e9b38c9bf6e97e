// The devices of backend.devices: their names and options. Pure; thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/config/config.h"

namespace rullama {

struct DeviceName {
  std::string backend;
  std::string device;  // index, or part of the name; empty: the first that is not software
};

// Splits "vulkan:1" at its first colon.
inline DeviceName ParseDeviceName(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {std::string(text), {}};
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

// The options of a device of the list, or with 0 of the only device: its own, and those of
// backend.options that it has not, if its backend is that of the first device.
inline std::map<std::string, std::string> OptionsOf(const BackendConfig& backend, size_t index) {
  if (backend.devices.empty()) return backend.options;
  const auto backend_of = [&](size_t i) {
    return ParseDeviceName(backend.devices[i].name).backend;
  };
  std::map<std::string, std::string> options = backend.devices[index].options;
  if (backend_of(index) == backend_of(0)) {
    options.insert(backend.options.begin(), backend.options.end());
  }
  return options;
}

}  // namespace rullama
