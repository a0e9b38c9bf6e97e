// An opened Vulkan device: its queue, memory, transfers and the order of its work. Each block of
// memory is one buffer with an address of its own.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/memory.h"
#include "backends/vulkan/pipelines.h"
#include "backends/vulkan/step_joiner.h"
#include "backends/vulkan/target.h"

namespace rullama::vulkan {

class VulkanDriver final : public gpu::Driver {
 public:
  // `instance` outlives it.
  VulkanDriver(const Instance& instance, const PhysicalDevice& physical, const sdk::Host& host,
               const DriverOptions& options);
  ~VulkanDriver() override;

  [[nodiscard]] VkDevice handle() const { return device_; }
  [[nodiscard]] const Facts& facts() const { return physical_.facts; }
  [[nodiscard]] MatrixExtension matrix_extension() const { return matrix_extension_; }
  [[nodiscard]] VkCommandPool pool() const { return pool_; }
  [[nodiscard]] Pipelines& pipelines() { return *pipelines_; }
  [[nodiscard]] const Pipelines& pipelines() const { return *pipelines_; }

  [[nodiscard]] gpu::MemoryFacts Memory() const override;
  std::unique_ptr<gpu::MemoryBlock> NewBlock(uint64_t bytes, gpu::Residence residence) override;
  void Write(const gpu::Allocation& to, uint64_t offset, std::span<const std::byte> data) override;
  void Read(const gpu::Allocation& from, uint64_t offset, std::span<std::byte> data) override;
  void FillZero(const gpu::Allocation& memory) override;
  std::unique_ptr<gpu::Kernel> Compile(const PipelineKey& key) override {
    return pipelines_->Make(key);
  }
  [[nodiscard]] std::string CacheName() const override;
  void LoadCache(std::span<const std::byte> saved) override { pipelines_->LoadCache(saved); }
  [[nodiscard]] std::vector<std::byte> CacheData(const gpu::Kernels& /*kernels*/) override {
    return pipelines_->CacheData();
  }
  std::unique_ptr<gpu::Commands> Record(const gpu::Recording& recording) override;
  void Submit(gpu::Commands& commands, const gpu::Readback& readback) override;
  void TimesOf(gpu::Commands& commands, std::vector<gpu::DispatchTime>& times) override;
  gpu::StepJoiner* joiner() override { return joiner_.get(); }
  // Errors that the validation layer reports are bugs of this plugin.
  void CheckMore() const override;

 private:
  void Finish() override;
  void CreateDevice();
  // Host memory for copies of memory that the host cannot map.
  const VulkanBlock& Staging();
  // Starts a recorded command buffer after everything before it. Errors: RL_DEVICE_LOST.
  void Start(VkCommandBuffer commands);
  template <typename Recorder>
  void RunNow(Recorder record);
  bool IsDoneSoon();
  void CheckLost(VkResult result, const char* call);

  const Instance& instance_;
  const PhysicalDevice physical_;
  const MatrixExtension matrix_extension_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer copy_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  uint64_t submitted_ = 0;  // values of the timeline
  uint64_t completed_ = 0;
  bool lost_ = false;
  std::vector<gpu::Readback> readbacks_;  // from mapped memory, by the next Finish()
  std::unique_ptr<VulkanBlock> staging_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<VulkanStepJoiner> joiner_;  // null: steps of one row are many dispatches
};

}  // namespace rullama::vulkan
