#include "engine/loading/layer_placement.h"

#include <algorithm>
#include <utility>

#include "core/passes/canonicalise.h"
#include "core/passes/layer_split.h"
#include "core/passes/layers.h"
#include "core/runtime/device_program.h"
#include "engine/loading/auto_settings.h"

namespace rullama {
namespace {

class LayerPlacer {
 public:
  LayerPlacer(const Graph& graph, const std::vector<std::string>& layer_outputs,
              const BackendDevices& devices, uint64_t reserved)
      : graph_(graph), devices_(devices), reserved_(reserved), policy_(devices.policy) {
    policy_.layer_outputs = layer_outputs;
  }

  Result<PlacementPolicy> Run(const LayerSplit& split) && {
    RL_ASSIGN_OR_RETURN(graph_, Canonicalise(graph_));
    RL_ASSIGN_OR_RETURN(const auto layer_of_op, LayersOf(graph_, policy_.layer_outputs));
    possible_cuts_ = PossibleCuts(graph_, layer_of_op, layers());
    if (!split.layers.empty()) {
      RL_ASSIGN_OR_RETURN(const LayerCounts counts,
                          SplitByCount(split.layers, device_count(), possible_cuts_));
      SetDevices(counts);
    } else if (!split.shares.empty()) {
      RL_ASSIGN_OR_RETURN(const LayerCounts counts,
                          SplitByShare(split.shares, device_count(), possible_cuts_));
      SetDevices(counts);
    } else {
      RL_RETURN_IF_ERROR(SplitByFreeMemory());
    }
    return std::move(policy_);
  }

 private:
  [[nodiscard]] size_t layers() const { return policy_.layer_outputs.size() - 1; }
  [[nodiscard]] size_t device_count() const { return devices_.layer_devices; }

  void SetDevices(const LayerCounts& counts) {
    policy_.layer_devices.clear();
    for (size_t device = 0; device < counts.size(); ++device) {
      policy_.layer_devices.insert(policy_.layer_devices.end(), counts[device],
                                   static_cast<int>(device));
    }
  }

  // The second split knows what the steps of the first one need.
  Status SplitByFreeMemory() {
    RL_ASSIGN_OR_RETURN(const std::vector<uint64_t> layer_bytes, BytesOfEachLayer());
    std::vector<DeviceRoom> rooms = Rooms();
    RL_ASSIGN_OR_RETURN(const LayerCounts first, SplitByRoom(layer_bytes, rooms, possible_cuts_));
    SetDevices(first);
    RL_ASSIGN_OR_RETURN(const Program program, BuildLargest(policy_));
    std::vector<uint64_t> work(devices_.devices.size(), 0);
    for (const PlannedSegment& segment : program.segments) {
      uint64_t& most = work[static_cast<size_t>(segment.device)];
      most = std::max(most, segment.memory.arena_bytes);
    }
    for (size_t i = 0; i < rooms.size(); ++i) Take(work[i], rooms[i]);
    RL_ASSIGN_OR_RETURN(const LayerCounts second, SplitByRoom(layer_bytes, rooms, possible_cuts_));
    SetDevices(second);
    return OkStatus();
  }

  [[nodiscard]] Result<Program> BuildLargest(const PlacementPolicy& policy) const {
    return BuildDeviceProgram(graph_, devices_.Borrow(), policy,
                              {.max_t = graph_.max_t, .max_r = graph_.max_r});
  }

  // Weights that the host keeps are not counted.
  [[nodiscard]] Result<std::vector<uint64_t>> BytesOfEachLayer() const {
    PlacementPolicy whole = policy_;
    whole.layer_devices.clear();
    while (whole.main_device == whole.host_device) ++whole.main_device;
    const std::vector<Device*> borrowed = devices_.Borrow();
    RL_ASSIGN_OR_RETURN(const Placement placed,
                        PlaceOps(graph_, SupportOfDevices(borrowed), whole));
    RL_ASSIGN_OR_RETURN(const auto layer_of_op, LayersOf(placed.graph, policy_.layer_outputs));
    return BytesOfLayers(placed.graph, layer_of_op, layers(), whole.host_device);
  }

  // Devices that are named twice share their memory. A processor is in reserve if there are others.
  [[nodiscard]] std::vector<DeviceRoom> Rooms() const {
    std::vector<DeviceRoom> rooms;
    const auto description = [&](size_t i) -> const DeviceDescription& {
      return devices_.devices[i]->description();
    };
    bool has_gpu = false;
    for (size_t i = 0; i < device_count(); ++i) has_gpu = has_gpu || IsGpu(description(i));
    for (size_t i = 0; i < device_count(); ++i) {
      const uint64_t bytes = MemoryBudget(description(i));
      const auto names = static_cast<uint64_t>(
          std::ranges::count(devices_.identities.begin(),
                             devices_.identities.begin() + device_count(), devices_.identities[i]));
      rooms.push_back({bytes / names, has_gpu && !IsGpu(description(i))});
    }
    Take(reserved_, rooms.front());
    return rooms;
  }

  static void Take(uint64_t bytes, DeviceRoom& room) { room.bytes -= std::min(room.bytes, bytes); }

  Graph graph_;
  const BackendDevices& devices_;
  uint64_t reserved_;
  PlacementPolicy policy_;
  std::vector<bool> possible_cuts_;
};

}  // namespace

Result<PlacementPolicy> PlaceLayers(const Graph& graph,
                                    const std::vector<std::string>& layer_outputs,
                                    const LayerSplit& split, const BackendDevices& devices,
                                    uint64_t reserved) {
  if (devices.layer_devices < 2) {
    if (split == LayerSplit()) return devices.policy;
    return MakeError(ErrorKind::kUsage, "split.devices",
                     "placement.split divides the layers among several devices, but there is one; "
                     "name them in backend.devices (--devices)");
  }
  if (layer_outputs.empty()) RL_RETURN_IF_ERROR(CheckOneDevice(devices, "a model that denoises"));
  return LayerPlacer(graph, layer_outputs, devices, reserved).Run(split);
}

std::vector<DeviceLayers> LayersByDevice(const PlacementPolicy& policy) {
  std::vector<DeviceLayers> runs;
  for (size_t layer = 0; layer < policy.layer_devices.size(); ++layer) {
    const int device = policy.layer_devices[layer];
    if (layer == 0 || device != policy.layer_devices[layer - 1]) {
      runs.push_back({policy.device_names[static_cast<size_t>(device)], device, layer, 0});
    }
    ++runs.back().count;
  }
  return runs;
}

}  // namespace rullama
