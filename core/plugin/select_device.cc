#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/plugin/registry.h"

namespace rullama {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "0: NVIDIA H200, 1: llvmpipe (software)".
std::string DevicesText(const std::vector<DeviceDescription>& devices) {
  std::string text;
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool software = devices[i].type == RL_DEVICE_SOFTWARE;
    text += fmt::format("{}{}: {}{}", i == 0 ? "" : ", ", i, devices[i].name,
                        software ? " (software)" : "");
  }
  return text;
}

bool IsNumber(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

using Devices = std::vector<DeviceDescription>;

Result<uint32_t> DefaultDevice(const Plugin& plugin, const Devices& devices) {
  const auto real = std::ranges::find_if(
      devices, [](const DeviceDescription& d) { return d.type != RL_DEVICE_SOFTWARE; });
  if (real != devices.end()) return static_cast<uint32_t>(real - devices.begin());
  return MakeError(ErrorKind::kBackend, "device.software",
                   "backend '{}' has only software devices ({}), which are slow and never chosen "
                   "silently; ask for one with --device 0, or take another backend",
                   plugin.name(), DevicesText(devices));
}

Result<uint32_t> DeviceByIndex(const Plugin& plugin, const Devices& devices,
                               std::string_view selector) {
  uint32_t index = 0;
  const auto parsed = std::from_chars(selector.data(), selector.data() + selector.size(), index);
  if (parsed.ec == std::errc() && index < devices.size()) return index;
  return MakeError(ErrorKind::kBackend, "device.unknown",
                   "backend '{}' has no device {}; its devices: {}", plugin.name(), selector,
                   DevicesText(devices));
}

Result<uint32_t> DeviceByName(const Plugin& plugin, const Devices& devices,
                              std::string_view selector) {
  const std::string wanted = Lower(selector);
  std::vector<uint32_t> matches;
  std::vector<uint32_t> exact;
  for (uint32_t i = 0; i < devices.size(); ++i) {
    const std::string name = Lower(devices[i].name);
    if (name == wanted) exact.push_back(i);
    if (name.find(wanted) != std::string::npos) matches.push_back(i);
  }
  if (exact.size() == 1) return exact.front();
  if (matches.size() == 1) return matches.front();
  if (matches.empty()) {
    return MakeError(ErrorKind::kBackend, "device.unknown",
                     "backend '{}' has no device whose name contains '{}'; its devices: {}",
                     plugin.name(), selector, DevicesText(devices));
  }
  return MakeError(ErrorKind::kBackend, "device.ambiguous",
                   "'{}' fits {} devices of backend '{}'; give the index: {}", selector,
                   matches.size(), plugin.name(), DevicesText(devices));
}

}  // namespace

Result<DeviceChoice> Registry::SelectDevice(const Plugin& plugin, std::string_view selector) {
  RL_ASSIGN_OR_RETURN(const Plugin::DeviceList list, plugin.ListDevices());
  const Devices& devices = list.devices;
  if (devices.empty()) {
    return MakeError(ErrorKind::kBackend, "device.none",
                     "backend '{}' has no device: {}; usable backends: {}", plugin.name(),
                     list.reason, UsableBackends());
  }
  Result<uint32_t> index = selector.empty()     ? DefaultDevice(plugin, devices)
                           : IsNumber(selector) ? DeviceByIndex(plugin, devices, selector)
                                                : DeviceByName(plugin, devices, selector);
  if (!index) return tl::unexpected<Error>(std::move(index).error());
  return DeviceChoice{*index, devices[*index]};
}

}  // namespace rullama
