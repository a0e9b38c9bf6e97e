// Spreads the layers of a model over the devices of a session, as placement.split of the
// configuration says. One thread at a time per device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/ir/graph.h"
#include "core/passes/placement.h"
#include "engine/loading/backend_setup.h"

namespace rullama {

// The layers of one device.
struct DeviceLayers {
  std::string name;  // of the device, as the configuration has it
  int device = 0;
  size_t first = 0;
  size_t count = 0;
};

// The policy of `devices` with the device of each layer, if several share the layers. `graph` is a
// graph of the model with the largest step, `layer_outputs` as in PlacementPolicy; they are empty
// for a model that cannot be spread. `auto` divides the free memory that a step of the graph
// and the `reserved` bytes of the first device leave. Errors: those of layer_split.h and of the
// passes; split.model (kUsage).
Result<PlacementPolicy> PlaceLayers(const Graph& graph,
                                    const std::vector<std::string>& layer_outputs,
                                    const LayerSplit& split, const BackendDevices& devices,
                                    uint64_t reserved = 0);

// The layers of each device of a policy; empty if its layers are not spread.
std::vector<DeviceLayers> LayersByDevice(const PlacementPolicy& policy);

}  // namespace rullama
