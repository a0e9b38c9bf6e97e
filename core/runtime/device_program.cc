#include "core/runtime/device_program.h"

#include <string>
#include <utility>
#include <vector>

namespace rullama {

SupportQuery SupportOfDevices(std::span<Device* const> devices) {
  return [devices](int device, const Graph& asked) -> Result<std::vector<std::string>> {
    RL_ASSIGN_OR_RETURN(const auto answers, devices[static_cast<size_t>(device)]->QueryOps(asked));
    std::vector<std::string> reasons;
    reasons.reserve(answers.size());
    for (const OpSupport& answer : answers) {
      std::string reason;
      if (!answer.supported) reason = answer.reason.empty() ? "no reason given" : answer.reason;
      reasons.push_back(std::move(reason));
    }
    return reasons;
  };
}

Result<Program> BuildDeviceProgram(const Graph& graph, std::span<Device* const> devices,
                                   const PlacementPolicy& policy, const Bucket& bucket,
                                   const std::optional<Differentiation>& differentiation,
                                   bool wanted_rows_apart) {
  PipelineOptions options;
  options.bucket = bucket;
  options.policy = policy;
  options.differentiation = differentiation;
  options.wanted_rows_apart = wanted_rows_apart;
  for (const Device* device : devices) {
    const DeviceDescription& description = device->description();
    options.arenas.push_back({description.alignment, description.max_buffer_bytes});
  }
  return BuildProgram(graph, SupportOfDevices(devices), options);
}

}  // namespace rullama
