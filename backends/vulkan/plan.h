// A compiled graph: command buffers recorded once and submitted for each step.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/device_objects.h"
#include "backends/gpu/dispatch_times.h"
#include "backends/gpu/kernel_cache.h"
#include "backends/gpu/plan_builder.h"
#include "backends/vulkan/driver.h"

namespace rullama::vulkan {

class PersistentStep;
class Profile;

// The parameters with which a graph is lowered: those of the device, or of its persistent dispatch.
Tuning TuningForGraph(const Tuning& device, const sdk::GraphView& graph);

class VulkanPlan final : public sdk::Plan, public gpu::Noted {
 public:
  VulkanPlan(VulkanDriver& driver, gpu::BlockMemory& blocks, gpu::KernelCache& kernels,
             const sdk::GraphView& graph, const Tuning& tuning);
  ~VulkanPlan() override;
  void Execute(int64_t t, int64_t r) override;
  [[nodiscard]] rl_plan_stats Stats() const override;
  [[nodiscard]] std::span<const rl_op_time> Times() override;

  void CheckFailure() override;

 private:
  // Commands for steps of one number of rows, or of any.
  struct Recording {
    int64_t t = 0;  // 0: any; shaders read the numbers
    int64_t r = 0;
    std::vector<VkCommandBuffer> commands;  // in order
    uint64_t dispatches = 0;
    uint64_t levels = 0;
    bool executed = false;
    std::shared_ptr<Profile> profile;            // if dispatches are timed
    std::shared_ptr<PersistentStep> persistent;  // if they are one; recorded when first executed
  };

  // `max_dispatches`: of a command buffer.
  void Record(const std::vector<Dispatch>& dispatches, const std::vector<uint32_t>& levels,
              size_t max_dispatches, Recording& recording);
  // One command buffer with the one dispatch of recording.persistent. Waits for its pipeline.
  void RecordPersistent(Recording& recording);
  // One command buffer with these dispatches, by level.
  VkCommandBuffer RecordPart(const std::vector<Dispatch>& dispatches,
                             const std::vector<uint32_t>& levels, std::span<const uint32_t> order,
                             Profile* profile);

  [[nodiscard]] VkCommandBuffer Begin() const;
  static void End(VkCommandBuffer commands);

  VulkanDriver& driver_;
  gpu::KernelCache& kernels_;
  gpu::Allocation step_;  // T, R, first failed op
  gpu::PlanMemory memory_;
  bool profile_;  // the times of dispatches go to the log in the end
  // Null unless the host wants the times. Records point into ops_of_node_.
  std::unique_ptr<gpu::DispatchTimes> times_;
  std::map<uint32_t, std::vector<uint32_t>> ops_of_node_;
  uint64_t submitted_ = 0;                // when the last execution was handed to the device
  const Recording* latest_ = nullptr;     // of the last execution, unless it failed
  gpu::JoinedKernels* joined_ = nullptr;  // of the persistent recordings
  std::vector<Recording> recordings_;
  int64_t t_ = -1, r_ = -1;  // in step_
  bool running_ = false;     // whether a failure has not been looked for yet
  bool stuck_ = false;       // workgroups of a persistent step waited for others in vain
  rl_plan_stats stats_{};
};

}  // namespace rullama::vulkan
