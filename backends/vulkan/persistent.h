// A whole step as one dispatch (persistent.comp): between its levels workgroups wait for one
// another on the device, which takes a fraction of what a barrier of the command buffer takes.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/gpu/step_joiner.h"
#include "backends/vulkan/pipelines.h"

namespace rullama::vulkan {

class PersistentStep {
 public:
  // `groups`: workgroups, all of which run at the same time.
  PersistentStep(gpu::Driver& driver, gpu::BlockMemory& blocks, uint32_t groups,
                 const gpu::JoinedStep& step);

  // `pipeline`: what Pipelines::Join made of the kinds.
  void Record(VkCommandBuffer commands, VkPipelineLayout layout, VkPipeline pipeline) const;

  [[nodiscard]] uint64_t bytes() const { return entries_.size() + starts_.size() + push_.size(); }
  static constexpr uint64_t kAllocations = 4;  // that a step makes

 private:
  // The push constants of persistent.comp.
  struct Push {
    VkDeviceAddress entries, starts, meeting, step;
    uint32_t levels;
    uint32_t reserved;
  };

  uint32_t groups_;
  gpu::Allocation push_, entries_, starts_, meeting_;
  Push constants_{};
};

}  // namespace rullama::vulkan
