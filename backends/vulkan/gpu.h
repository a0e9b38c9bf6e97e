// An opened device: its queue, memory, transfers and the order of its work.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu/deferred_errors.h"
#include "backends/vulkan/memory.h"

namespace rullama::vulkan {

class Gpu {
 public:
  Gpu(const PhysicalDevice& physical, MatrixExtension matrix_extension, const sdk::Host& host);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] VkDevice handle() const { return device_; }
  [[nodiscard]] const Capabilities& capabilities() const { return physical_.capabilities; }
  // The one through which shaders use matrix units.
  [[nodiscard]] MatrixExtension matrix_extension() const { return matrix_extension_; }
  [[nodiscard]] const sdk::Host& host() const { return host_; }
  [[nodiscard]] Memory& memory() { return *memory_; }
  [[nodiscard]] VkCommandPool pool() const { return pool_; }

  // Starts a recorded command buffer after everything before it. Errors: RL_DEVICE_LOST.
  void Submit(VkCommandBuffer commands);
  // Waits for everything. Errors: RL_DEVICE_LOST, and ever after; what the plans remembered have
  // noted.
  void Wait();
  // Before memory goes away; what went wrong is logged.
  void WaitQuietly() noexcept;
  // Work that was submitted, whose failure is looked for by the next Wait.
  void Remember(gpu::Noted& work) { running_.Add(work); }
  // Waits for everything and drops the work, whatever it has noted.
  void Forget(const gpu::Noted& work) noexcept;

  // Device memory; contents are undefined. `shared`: the host sees it.
  Allocation NewMemory(uint64_t bytes, bool shared) {
    return memory_->Allocate(bytes, shared ? Residence::kShared : Residence::kDevice);
  }
  static constexpr bool kFollowsPointers = true;
  // Workgroups a dispatch may have.
  [[nodiscard]] uint32_t MaxGroups(uint32_t axis) const {
    return capabilities().properties.limits.maxComputeWorkGroupCount[axis];
  }

  // Copies, done on return. `offset` counts from the allocation's start.
  void Write(const Allocation& to, uint64_t offset, std::span<const std::byte> data);
  void Read(const Allocation& from, uint64_t offset, std::span<std::byte> data);
  void FillZero(const Allocation& memory);

 private:
  void CreateDevice();
  Allocation& Staging();
  template <typename Record>
  void RunNow(Record record);
  bool IsDoneSoon();
  void CheckLost(VkResult result, const char* call);

  const PhysicalDevice physical_;
  const MatrixExtension matrix_extension_;
  sdk::Host host_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer copy_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  uint64_t submitted_ = 0;  // values of the timeline
  uint64_t completed_ = 0;
  bool lost_ = false;
  gpu::RunningWork running_;
  std::unique_ptr<Memory> memory_;
  Allocation staging_;
};

}  // namespace rullama::vulkan
