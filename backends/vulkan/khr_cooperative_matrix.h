// The declarations of VK_KHR_cooperative_matrix for headers of Vulkan from before it (1.3.255),
// with the names and numbers of the registry.
#pragma once

#include "backends/vulkan/api.h"

#ifndef VK_KHR_cooperative_matrix
// NOLINTBEGIN(readability-identifier-naming): the names are those of Vulkan's headers.
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"

inline constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR =
    static_cast<VkStructureType>(1000506000);
inline constexpr auto VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR =
    static_cast<VkStructureType>(1000506001);
inline constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR =
    static_cast<VkStructureType>(1000506002);

using VkComponentTypeKHR = VkComponentTypeNV;
using VkScopeKHR = VkScopeNV;
inline constexpr VkComponentTypeKHR VK_COMPONENT_TYPE_FLOAT16_KHR = VK_COMPONENT_TYPE_FLOAT16_NV;
inline constexpr VkComponentTypeKHR VK_COMPONENT_TYPE_FLOAT32_KHR = VK_COMPONENT_TYPE_FLOAT32_NV;
inline constexpr VkScopeKHR VK_SCOPE_SUBGROUP_KHR = VK_SCOPE_SUBGROUP_NV;

struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void* pNext;
  uint32_t MSize, NSize, KSize;
  VkComponentTypeKHR AType, BType, CType, ResultType;
  VkBool32 saturatingAccumulation;
  VkScopeKHR scope;
};

struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
  VkStructureType sType;
  void* pNext;
  VkBool32 cooperativeMatrix;
  VkBool32 cooperativeMatrixRobustBufferAccess;
};

struct VkPhysicalDeviceCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void* pNext;
  VkShaderStageFlags cooperativeMatrixSupportedStages;
};

using PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = VkResult(VKAPI_PTR*)(
    VkPhysicalDevice device, uint32_t* count, VkCooperativeMatrixPropertiesKHR* properties);
// NOLINTEND(readability-identifier-naming)
#endif
