// Vulkan's functions, loaded at run time so that the plugin needs no driver to be opened, and its
// errors as exceptions of the SDK.
#pragma once

#include <rullama/sdk/backend.h>
#include <volk.h>

#include <string>
#include <string_view>
#include <vector>

namespace rullama::vulkan {

// Name of a result: "VK_ERROR_DEVICE_LOST (-4)".
std::string NameOf(VkResult result);

// Throws sdk::Error unless the call succeeded: RL_OUT_OF_MEMORY, RL_DEVICE_LOST, RL_UNAVAILABLE or
// RL_INTERNAL, with the driver's code.
void Check(VkResult result, std::string_view call);

// Whether an extension is one of a device's.
bool HasExtension(const std::vector<std::string>& extensions, const char* name);

}  // namespace rullama::vulkan
