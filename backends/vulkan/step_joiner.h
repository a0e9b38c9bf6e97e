// Steps of one row as one dispatch (persistent.h): for which graphs, and of which kernels.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/gpu/step_joiner.h"
#include "backends/vulkan/pipelines.h"

namespace rullama::vulkan {

class VulkanDriver;

class VulkanStepJoiner final : public gpu::StepJoiner {
 public:
  // On a device with Facts::memory_model and subgroup_arithmetic, which outlives it.
  explicit VulkanStepJoiner(VulkanDriver& driver) : driver_(driver) {}

  [[nodiscard]] std::optional<gpu::Target> TargetFor(const gpu::Target& device,
                                                     const sdk::GraphView& graph) const override;
  void MergeKinds(std::vector<Dispatch>& dispatches) const override;
  std::unique_ptr<gpu::JoinedKernels> Join(std::span<const PipelineKey> kinds) override;
  gpu::JoinedCommands Record(const gpu::JoinedStep& step, gpu::BlockMemory& blocks) override;
  [[nodiscard]] sdk::Error StuckError() const override {
    return sdk::Error(RL_DEVICE_LOST,
                      "the device does not run all workgroups of a step at the same time; set "
                      "backend.options.persistent to off");
  }

 private:
  VulkanDriver& driver_;
};

}  // namespace rullama::vulkan
