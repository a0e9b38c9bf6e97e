// The name of a device in backend.devices. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

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

}  // namespace rullama
