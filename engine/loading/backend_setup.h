// Plugins and devices as the configuration asks for them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/passes/placement.h"
#include "core/plugin/registry.h"
#include "engine/host_hooks.h"

namespace rullama {

// The backend that is built in.
inline constexpr const char* kReferenceBackend = "reference";

// A registry with the built-in reference backend. `plugin_paths` are searched before those of the
// configuration.
std::unique_ptr<Registry> MakeRegistry(const Config& config,
                                       const std::vector<std::string>& plugin_paths,
                                       const HostHooks& hooks);

// The devices of a session, main device first. Owns them; the registry must outlive it.
struct BackendDevices {
  std::string backend;  // of the main device
  std::vector<std::unique_ptr<Device>> devices;
  size_t layer_devices = 1;  // this many, from the first, share the layers of the model
  // Backend and index of these devices. Two that are equal share their memory.
  std::vector<std::pair<std::string, uint32_t>> identities;
  PlacementPolicy policy;  // its indices are those of `devices`

  [[nodiscard]] Device& main() const { return *devices.front(); }
  // Whether rows of a step that checks a draft have the bytes of steps of their own, so that the
  // length of a draft changes no answer (docs/numerics.md, "Rows of a batch"). False where that
  // depends on the device: plugins do not tell.
  [[nodiscard]] bool draft_rows_are_equal() const { return backend == "cpu" && layer_devices == 1; }
  // The devices without their ownership, in the same order.
  [[nodiscard]] std::vector<Device*> Borrow() const;
  // Descriptions of the devices that share the layers, in the same order.
  [[nodiscard]] std::vector<DeviceDescription> DescribeLayerDevices() const;
};

// Error split.model (kUsage) if several devices are to share the layers, which `what` cannot do.
Status CheckOneDevice(const BackendDevices& devices, std::string_view what);

// Whether the devices can run all ops of a graph, which may be placed elsewhere only as `policy`
// allows. Loads no weights. Errors of PlaceOps().
Status CheckSupport(const Graph& graph, const BackendDevices& devices,
                    const PlacementPolicy& policy);

// Opens the configured devices and, if the policy lets ops leave them, also the cpu backend, unless
// it is one of them. Options are those of OptionsOf() (device_name.h). What `auto` chose and a host
// device that could not be opened are told to `notices`; with placement.host_expert_layers such a
// host is an error. Errors: those of Registry and Plugin::Open; backend.none if `auto` finds
// nothing.
Result<BackendDevices> OpenDevices(Registry& registry, const Config& config, const HostHooks& hooks,
                                   Notices& notices);

}  // namespace rullama
