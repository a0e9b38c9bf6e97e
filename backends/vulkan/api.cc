#define VOLK_IMPLEMENTATION
#include "backends/vulkan/api.h"

#include <algorithm>

namespace rullama::vulkan {
namespace {

rl_code CodeOf(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return RL_OUT_OF_MEMORY;
    case VK_ERROR_DEVICE_LOST:
      return RL_DEVICE_LOST;
    case VK_ERROR_INITIALIZATION_FAILED:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_LAYER_NOT_PRESENT:
      return RL_UNAVAILABLE;
    default:
      return RL_INTERNAL;
  }
}

const char* TextOf(VkResult result) {
  switch (result) {
#define RL_NAME(name) \
  case name:          \
    return #name;
    RL_NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
    RL_NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    RL_NAME(VK_ERROR_INITIALIZATION_FAILED)
    RL_NAME(VK_ERROR_DEVICE_LOST)
    RL_NAME(VK_ERROR_LAYER_NOT_PRESENT)
    RL_NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
    RL_NAME(VK_ERROR_FEATURE_NOT_PRESENT)
    RL_NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
    RL_NAME(VK_ERROR_TOO_MANY_OBJECTS)
    RL_NAME(VK_TIMEOUT)
#undef RL_NAME
    default:
      return "VkResult";
  }
}

}  // namespace

std::string NameOf(VkResult result) {
  return std::string(TextOf(result)) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

void Check(VkResult result, std::string_view call) {
  if (result >= 0 && result != VK_TIMEOUT) return;
  throw sdk::Error(CodeOf(result), std::string(call) + ": " + NameOf(result), RL_NO_OP,
                   static_cast<int32_t>(result));
}

bool HasExtension(const std::vector<std::string>& extensions, const char* name) {
  return std::ranges::find(extensions, name) != extensions.end();
}

}  // namespace rullama::vulkan
