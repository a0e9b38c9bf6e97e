// Times of the dispatches of a recording, by the device's clock. For finding out where a step goes:
// dispatches run one after the other while they are timed.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/vulkan/driver.h"

namespace rullama::vulkan {

class Profile {
 public:
  Profile(VulkanDriver& driver, size_t dispatches);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // While recording: at the start of each command buffer, and after each dispatch.
  void Start(VkCommandBuffer commands);
  void After(VkCommandBuffer commands, const Dispatch& dispatch);
  // The following two tell the times of the last execution, which has to be done.
  //
  // When each dispatch ended, in nanoseconds since the first began, in the order of After(). Empty
  // if the device does not tell.
  [[nodiscard]] std::span<const uint64_t> Ends();
  // The op_index of each dispatch.
  [[nodiscard]] std::span<const uint32_t> ops() const { return ops_; }
  // A line for each shader with its share, longest first.
  [[nodiscard]] std::vector<std::string> Report();

 private:
  VulkanDriver& driver_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
  uint32_t size_ = 0;               // of the pool
  uint32_t count_ = 0;              // timed dispatches
  std::vector<std::string> names_;  // of the dispatches
  std::vector<uint32_t> ops_;       // of the dispatches
  std::vector<uint64_t> ticks_;     // memory of Ends(): of the device, from the first begin on
};

}  // namespace rullama::vulkan
