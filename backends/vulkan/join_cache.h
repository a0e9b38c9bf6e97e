// Joined shaders in the host's cache of blobs: joining takes seconds, reading milliseconds.
//
// Thread safety: that of the host's functions, which may be called from any thread.
#pragma once

#include <rullama/sdk/backend.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "backends/vulkan/join.h"

namespace rullama::vulkan {

// A shader that becomes a task: its name, its code before WithConstants, and its constants. All
// tasks of a joined shader have the same constant 0, the size of a workgroup.
struct TaskSource {
  std::string_view name;
  std::span<const uint32_t> code;
  std::span<const uint32_t> constants;
};

// A hash of all that the results of WithConstants() and Join() depend on: these shaders, the
// sources of this folder, and SPIRV-Tools.
uint64_t HashOfSources(std::span<const uint32_t> driver, std::span<const TaskSource> tasks);

// Puts the constants into a driver and one task or more, and joins them. Throws as Join() does.
Joined JoinSources(std::span<const uint32_t> driver, std::span<const TaskSource> tasks,
                   const std::atomic<bool>& stop = kNeverStop);

// The same, from the host's cache if this build has put it there. A blob of another build is
// replaced.
Joined JoinWithCache(const sdk::Host& host, std::span<const uint32_t> driver,
                     std::span<const TaskSource> tasks, const std::atomic<bool>& stop = kNeverStop);

}  // namespace rullama::vulkan
