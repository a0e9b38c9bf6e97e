// The environment that shaders are compiled for, in terms of SPIRV-Tools.
#pragma once

#include <spirv-tools/libspirv.h>

namespace rullama::vulkan {

inline constexpr spv_target_env kTarget = SPV_ENV_VULKAN_1_2;

}  // namespace rullama::vulkan
