// Times of the dispatches of a recording, by the device's clock. For finding out where a step goes:
// dispatches run one after the other while they are timed.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/vulkan/pipelines.h"

namespace rullama::vulkan {

class Profile {
 public:
  Profile(Gpu& gpu, size_t dispatches);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // While recording: at the start of each command buffer, and after each dispatch.
  void Start(VkCommandBuffer commands);
  void After(VkCommandBuffer commands, const Dispatch& dispatch);
  // The times of the last execution, which has to be done: a line for each shader with its share,
  // longest first.
  [[nodiscard]] std::vector<std::string> Report() const;

 private:
  Gpu& gpu_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
  uint32_t size_ = 0;               // of the pool
  uint32_t count_ = 0;              // timed dispatches
  std::vector<std::string> names_;  // of the dispatches
};

}  // namespace rullama::vulkan
