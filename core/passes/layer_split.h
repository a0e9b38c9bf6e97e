// Divides the layers of a model among devices: each device gets a run of layers, in the order of
// the devices. Results are numbers of layers by device, each at least 1, which add up to the layers
// of the model. `possible_cuts` is that of PossibleCuts(). Pure; thread-safe.
//
// Errors (kUsage): split.devices if there are more devices than parts into which the model can be
// cut; split.numbers if numbers given by the user fit neither the devices nor the model; split.cut
// if they would cut where the model cannot be cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

using LayerCounts = std::vector<size_t>;

// As the user says: the layers of each device.
Result<LayerCounts> SplitByCount(std::span<const int64_t> counts, size_t devices,
                                 const std::vector<bool>& possible_cuts);

// In proportion to `shares`, each above 0, as closely as the possible cuts allow.
Result<LayerCounts> SplitByShare(std::span<const double> shares, size_t devices,
                                 const std::vector<bool>& possible_cuts);

struct DeviceRoom {
  uint64_t bytes = 0;    // for weights and caches
  bool reserve = false;  // takes only what the other devices have no room for
};

// So that the layers fit if they can, that devices in reserve hold as little as possible, and that
// the others are filled evenly. `layer_bytes`: what each layer takes of a device's room.
Result<LayerCounts> SplitByRoom(std::span<const uint64_t> layer_bytes,
                                std::span<const DeviceRoom> rooms,
                                const std::vector<bool>& possible_cuts);

// The weights and states in bytes that the ops of each layer use, without those that ops on
// `host_device` use; -1: no such device. What follows the last layer counts with it.
std::vector<uint64_t> BytesOfLayers(const Graph& placed, std::span<const size_t> layer_of_op,
                                    size_t layers, int host_device);

}  // namespace rullama
