// A layer of Vulkan in which each compute pipeline is noted and takes its time (slow_compiler.h).
// For one instance and one device at a time.
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <cstring>

#include "tests/warm_up/slow_compiler.h"

namespace {

// What comes after the layer.
PFN_vkGetInstanceProcAddr next_instance_function = nullptr;
PFN_vkGetDeviceProcAddr next_device_function = nullptr;
VkInstance instance_of_layer = VK_NULL_HANDLE;

// The link to what comes after the layer, in the list that a create function is given.
template <typename Link>
Link* FindLink(const void* first, VkStructureType type) {
  auto* link = static_cast<Link*>(const_cast<void*>(first));
  while (link != nullptr && (link->sType != type || link->function != VK_LAYER_LINK_INFO)) {
    link = static_cast<Link*>(const_cast<void*>(link->pNext));
  }
  return link;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateInstance(const VkInstanceCreateInfo* info,
                                              const VkAllocationCallbacks* allocator,
                                              VkInstance* instance) {
  auto* link = FindLink<VkLayerInstanceCreateInfo>(info->pNext,
                                                   VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
  if (link == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
  next_instance_function = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(
      next_instance_function(VK_NULL_HANDLE, "vkCreateInstance"));
  const VkResult result = create(info, allocator, instance);
  if (result == VK_SUCCESS) instance_of_layer = *instance;
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateDevice(VkPhysicalDevice physical,
                                            const VkDeviceCreateInfo* info,
                                            const VkAllocationCallbacks* allocator,
                                            VkDevice* device) {
  auto* link =
      FindLink<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
  if (link == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
  const PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  next_device_function = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const auto create =
      reinterpret_cast<PFN_vkCreateDevice>(next(instance_of_layer, "vkCreateDevice"));
  return create(physical, info, allocator, device);
}

VKAPI_ATTR VkResult VKAPI_CALL CreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                                      uint32_t count,
                                                      const VkComputePipelineCreateInfo* infos,
                                                      const VkAllocationCallbacks* allocator,
                                                      VkPipeline* pipelines) {
  rullama::slow_compiler::NoteAndWait("pipeline");
  const auto create = reinterpret_cast<PFN_vkCreateComputePipelines>(
      next_device_function(device, "vkCreateComputePipelines"));
  return create(device, cache, count, infos, allocator, pipelines);
}

PFN_vkVoidFunction FunctionOfDevice(const char* name) {
  if (std::strcmp(name, "vkCreateComputePipelines") != 0) return nullptr;
  return reinterpret_cast<PFN_vkVoidFunction>(CreateComputePipelines);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL GetDeviceProcAddr(VkDevice device, const char* name) {
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) {
    return reinterpret_cast<PFN_vkVoidFunction>(GetDeviceProcAddr);
  }
  if (const PFN_vkVoidFunction own = FunctionOfDevice(name)) return own;
  return next_device_function(device, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL GetInstanceProcAddr(VkInstance instance,
                                                             const char* name) {
  const struct {
    const char* name;
    PFN_vkVoidFunction function;
  } own[] = {
      {"vkGetInstanceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(GetInstanceProcAddr)},
      {"vkGetDeviceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(GetDeviceProcAddr)},
      {"vkCreateInstance", reinterpret_cast<PFN_vkVoidFunction>(CreateInstance)},
      {"vkCreateDevice", reinterpret_cast<PFN_vkVoidFunction>(CreateDevice)},
      {"vkCreateComputePipelines", FunctionOfDevice("vkCreateComputePipelines")},
  };
  for (const auto& entry : own) {
    if (std::strcmp(name, entry.name) == 0) return entry.function;
  }
  return next_instance_function == nullptr ? nullptr : next_instance_function(instance, name);
}

}  // namespace

extern "C" VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* negotiated) {
  constexpr uint32_t kVersion = 2;
  if (negotiated->loaderLayerInterfaceVersion < kVersion) return VK_ERROR_INITIALIZATION_FAILED;
  negotiated->loaderLayerInterfaceVersion = kVersion;
  negotiated->pfnGetInstanceProcAddr = GetInstanceProcAddr;
  negotiated->pfnGetDeviceProcAddr = GetDeviceProcAddr;
  negotiated->pfnGetPhysicalDeviceProcAddr = nullptr;
  return VK_SUCCESS;
}
