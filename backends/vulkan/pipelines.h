// Compute pipelines of shaders, and what the host's cache keeps of them: the driver's own cache,
// and the shaders that it was given.
//
// Thread safety: none but for Make() and CacheData(); used under the host's lock on the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backends/gpu/background_work.h"
#include "backends/gpu/driver.h"
#include "backends/gpu/step_joiner.h"
#include "backends/vulkan/api.h"
#include "backends/vulkan/instructions.h"
#include "backends/vulkan/shader_cache.h"

namespace rullama::vulkan {

using gpu::Dispatch;
using gpu::PipelineKey;
using gpu::Shader;

class VulkanDriver;

class Pipeline final : public gpu::Kernel {
 public:
  Pipeline(VkDevice device, VkPipeline handle) : device_(device), handle_(handle) {}
  ~Pipeline() override { vkDestroyPipeline(device_, handle_, nullptr); }
  static VkPipeline HandleOf(const gpu::Kernel& kernel) {
    return static_cast<const Pipeline&>(kernel).handle_;
  }

 private:
  VkDevice device_;
  VkPipeline handle_;
};

// A pipeline that runs tasks of several kinds (join.h). Joining them and the driver take seconds,
// so other threads do it.
class JoinedPipeline final : public gpu::JoinedKernels {
 public:
  // Returns null if the device cannot run the tasks as one. May throw once it is given up.
  using Maker = std::function<std::unique_ptr<Pipeline>(const std::atomic<bool>& given_up)>;

  JoinedPipeline(gpu::BackgroundWork& work, Maker make);
  [[nodiscard]] gpu::JoinState state() const noexcept override { return progress_->state; }
  bool GiveUp() noexcept override;
  void Wait() noexcept override { made_.wait(); }
  // The pipelines of kernels that are ready. Throws errors of Vulkan.
  [[nodiscard]] VkPipeline handle() const { return Pipeline::HandleOf(*made_.get()); }

 private:
  // State that the thread that makes the pipeline shares with the object.
  struct Progress {
    std::atomic<bool> taken = false;  // by that thread, or given up before
    std::atomic<bool> given_up = false;
    std::atomic<gpu::JoinState> state = gpu::JoinState::kWaiting;
    std::promise<std::unique_ptr<Pipeline>> made;
  };

  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::shared_future<std::unique_ptr<Pipeline>> made_ = progress_->made.get_future().share();
};

class Pipelines {
 public:
  // `subgroups`: which form of the shaders is used. `driver` outlives it.
  Pipelines(const VulkanDriver& driver, bool subgroups);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // Any number of threads may call it at a time.
  [[nodiscard]] std::unique_ptr<Pipeline> Make(const PipelineKey& key);
  // A pipeline of tasks of these kinds, all of which have the same constant 0, on a device with
  // Facts::memory_model and subgroup_arithmetic. It is refused if the tasks need more shared memory
  // than there is.
  [[nodiscard]] std::unique_ptr<JoinedPipeline> Join(std::span<const PipelineKey> kinds);
  [[nodiscard]] VkPipelineLayout layout() const { return layout_; }
  // Takes what CacheData() gave, or nothing.
  void LoadCache(std::span<const std::byte> saved);
  [[nodiscard]] std::vector<std::byte> CacheData() const;

 private:
  [[nodiscard]] std::unique_ptr<Pipeline> Make(const Spirv& code, std::string_view name) const;
  [[nodiscard]] std::unique_ptr<Pipeline> MakeJoined(std::span<const PipelineKey> kinds,
                                                     const std::atomic<bool>& given_up);
  [[nodiscard]] VkPipelineCache NewCache(std::span<const std::byte> saved) const;
  [[nodiscard]] size_t DriverCacheSize() const;
  [[nodiscard]] std::vector<std::byte> DriverCache() const;
  // Hands the host CacheData() if the driver's cache has grown since it did so last. A process that
  // is killed then leaves what took the driver longest.
  void KeepIfGrown();

  const VulkanDriver& driver_;
  bool subgroups_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::atomic<size_t> kept_size_ = 0;  // of the driver's cache
  ShaderCache shaders_;
  gpu::BackgroundWork joining_;  // last: uses the others
};

}  // namespace rullama::vulkan
