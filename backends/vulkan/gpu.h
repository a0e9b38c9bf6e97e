// An opened device: its queue, memory, transfers and the order of its work.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/vulkan/memory.h"

namespace rullama::vulkan {

class VulkanPlan;

class Gpu {
 public:
  Gpu(const PhysicalDevice& physical, const sdk::Host& host);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] VkDevice handle() const { return device_; }
  [[nodiscard]] const Capabilities& capabilities() const { return physical_.capabilities; }
  [[nodiscard]] const sdk::Host& host() const { return host_; }
  [[nodiscard]] Memory& memory() { return *memory_; }
  [[nodiscard]] VkCommandPool pool() const { return pool_; }

  // Starts a recorded command buffer after everything before it. Errors: RL_DEVICE_LOST.
  void Submit(VkCommandBuffer commands);
  // Waits for everything. Errors: RL_DEVICE_LOST, and ever after; what the plans remembered have
  // noted.
  void Wait();
  // A plan that was submitted, whose failure is looked for by the next Wait.
  void Remember(VulkanPlan& plan) { running_.push_back(&plan); }
  // Waits for everything and drops the plan, whatever it has noted.
  void Forget(const VulkanPlan& plan) noexcept;

  // Copies, done on return. `offset` counts from the allocation's start.
  void Write(const Allocation& to, uint64_t offset, std::span<const std::byte> data);
  void Read(const Allocation& from, uint64_t offset, std::span<std::byte> data);
  void FillZero(const Allocation& memory);

 private:
  void CreateDevice();
  Allocation& Staging();
  template <typename Record>
  void RunNow(Record record);
  void CheckLost(VkResult result, const char* call);

  const PhysicalDevice& physical_;
  sdk::Host host_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer copy_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  uint64_t submitted_ = 0;  // values of the timeline
  uint64_t completed_ = 0;
  bool lost_ = false;
  std::vector<VulkanPlan*> running_;  // since the last Wait
  std::unique_ptr<Memory> memory_;
  Allocation staging_;
};

}  // namespace rullama::vulkan
