// Compiles a graph for a set of devices, up to the plans of the devices.
#pragma once

#include <optional>
#include <span>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/passes/bucket.h"
#include "core/passes/pipeline.h"
#include "core/plugin/device.h"

namespace rullama {

// Asks the devices, which are named by their index, which ops they support. The span outlives the
// query. One thread at a time per device.
SupportQuery SupportOfDevices(std::span<Device* const> devices);

// Runs all passes over `graph` for steps of `bucket`, with its derivatives if there is a
// `differentiation`. Segments and `policy` name devices by their index in `devices`.
// `wanted_rows_apart`: PipelineOptions has it. Errors: those of BuildProgram and of the devices.
// One thread at a time per device.
Result<Program> BuildDeviceProgram(const Graph& graph, std::span<Device* const> devices,
                                   const PlacementPolicy& policy, const Bucket& bucket,
                                   const std::optional<Differentiation>& differentiation = {},
                                   bool wanted_rows_apart = false);

}  // namespace rullama
