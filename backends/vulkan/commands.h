// Command buffers, recorded once and submitted for each step.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/vulkan/driver.h"
#include "backends/vulkan/persistent.h"
#include "backends/vulkan/pipelines.h"

namespace rullama::vulkan {

// When the dispatches of a recording ended, by the device's clock.
class Timestamps {
 public:
  Timestamps(const VulkanDriver& driver, size_t dispatches);
  ~Timestamps() { vkDestroyQueryPool(driver_.handle(), pool_, nullptr); }
  Timestamps(const Timestamps&) = delete;
  Timestamps& operator=(const Timestamps&) = delete;

  // While recording: at the start of each command buffer, and after each dispatch.
  void Start(VkCommandBuffer commands) const;
  void After(VkCommandBuffer commands);
  // Of the last execution, which has to be done: Driver::TimesOf.
  void Read(std::vector<gpu::DispatchTime>& times) const;

 private:
  const VulkanDriver& driver_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
  uint32_t size_;       // of the pool
  uint32_t count_ = 0;  // timed dispatches
};

class VulkanCommands final : public gpu::Commands {
 public:
  // `driver` outlives it.
  VulkanCommands(const VulkanDriver& driver, const gpu::Recording& recording);
  // Of one dispatch. It is recorded when the buffers are first asked for, because the pipeline may
  // not be ready before.
  VulkanCommands(const VulkanDriver& driver, std::unique_ptr<PersistentStep> step,
                 const JoinedPipeline& pipeline);
  ~VulkanCommands() override;

  // In order. The first call for one dispatch waits for its pipeline, and throws errors of Vulkan.
  [[nodiscard]] std::span<const VkCommandBuffer> Buffers();
  void ReadTimes(std::vector<gpu::DispatchTime>& times) const { timestamps_->Read(times); }

 private:
  VkCommandBuffer Begin();
  static void End(VkCommandBuffer commands);
  // One command buffer with dispatches [first, last).
  void RecordPart(const gpu::Recording& recording, size_t first, size_t last);
  void RecordStep();

  const VulkanDriver& driver_;
  std::vector<VkCommandBuffer> buffers_;
  std::unique_ptr<Timestamps> timestamps_;  // if dispatches are timed
  std::unique_ptr<PersistentStep> step_;    // until it is recorded `buffers_` are empty
  const JoinedPipeline* pipeline_ = nullptr;
};

}  // namespace rullama::vulkan
