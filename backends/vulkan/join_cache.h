// Joined shaders in the host's cache of blobs: joining takes seconds, reading milliseconds.
//
// Thread safety: all functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/vulkan/join.h"

namespace rullama::vulkan {

// A shader that becomes a task: its code before WithConstants, and its constants.
struct TaskSource {
  std::span<const uint32_t> code;
  std::span<const uint32_t> constants;
};

// The key of what Join() makes of these. It names all that the result depends on: the code, the
// constants, the sources of join.cc and the version of SPIRV-Tools.
std::string JoinedKey(std::span<const uint32_t> driver, std::span<const TaskSource> tasks);

std::vector<std::byte> PackJoined(const Joined& joined);
// Nothing if the bytes are none of PackJoined.
std::optional<Joined> UnpackJoined(std::span<const std::byte> bytes);

}  // namespace rullama::vulkan
