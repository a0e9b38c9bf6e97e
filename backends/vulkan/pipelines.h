// Compute pipelines by shader and constants, made when first asked for and kept until the device is
// closed; the driver's cache of them lives on disk between runs.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/plan_builder.h"
#include "backends/vulkan/driver.h"
#include "backends/vulkan/instructions.h"

namespace rullama::vulkan {

using gpu::Dispatch;
using gpu::PipelineKey;
using gpu::Shader;
using gpu::Tuning;

class Pipelines {
 public:
  // `subgroups`: which form of the shaders is used.
  Pipelines(VulkanDriver& driver, bool subgroups);
  ~Pipelines();  // saves the cache
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // Makes those that are missing, on several threads. Returns how many.
  uint64_t Prepare(std::span<const PipelineKey> keys);
  // A pipeline that runs tasks of these kinds (join.h), all of which have the same constant 0, on a
  // device with Capabilities::memory_model and subgroup_arithmetic. Kept like the others. Drivers
  // take seconds for it, so another thread makes it while this one goes on; get() waits and throws
  // errors of Vulkan. Nothing if the tasks need more shared memory than there is.
  std::optional<std::shared_future<VkPipeline>> Join(std::span<const PipelineKey> kinds);
  // One that was prepared.
  [[nodiscard]] VkPipeline Get(const PipelineKey& key) const { return pipelines_.at(key); }
  [[nodiscard]] VkPipelineLayout layout() const { return layout_; }
  [[nodiscard]] static std::string_view NameOf(Shader shader);

 private:
  [[nodiscard]] VkPipeline Make(const PipelineKey& key) const;
  [[nodiscard]] VkPipeline Make(const Spirv& code, std::string_view name) const;
  [[nodiscard]] std::string CacheName() const;
  void LoadCache();
  void SaveCache() noexcept;

  VulkanDriver& driver_;
  bool subgroups_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::map<PipelineKey, VkPipeline> pipelines_;
  std::map<std::vector<PipelineKey>, std::optional<std::shared_future<VkPipeline>>> joined_;
  bool changed_ = false;
};

}  // namespace rullama::vulkan
