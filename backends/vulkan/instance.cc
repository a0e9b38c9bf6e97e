#include "backends/vulkan/instance.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace rullama::vulkan {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
constexpr uint32_t kMinPushConstants = 128;   // what Vulkan promises
constexpr uint32_t kMinSharedMemory = 32768;  // the tiles of matmul and attention
constexpr uint32_t kMinInvocations = 256;     // of a workgroup

bool WantsValidation() {
  const char* wish = std::getenv("RULLAMA_VULKAN_VALIDATION");
  return wish != nullptr && std::strcmp(wish, "1") == 0;
}

std::vector<std::string> ExtensionsOf(VkPhysicalDevice device) {
  uint32_t count = 0;
  vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> properties(count);
  vkEnumerateDeviceExtensionProperties(device, nullptr, &count, properties.data());
  std::vector<std::string> names;
  names.reserve(properties.size());
  for (const auto& property : properties) names.emplace_back(property.extensionName);
  return names;
}

struct QueueFamily {
  uint32_t index = 0;
  uint32_t timestamp_bits = 0;
};

// A queue family that computes; one that does not draw is preferred, it has less to switch.
std::optional<QueueFamily> ComputeFamily(VkPhysicalDevice device) {
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  std::optional<QueueFamily> found;
  for (uint32_t i = 0; i < count; ++i) {
    const VkQueueFlags flags = families[i].queueFlags;
    if ((flags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
    const QueueFamily family{i, families[i].timestampValidBits};
    if (!found) found = family;
    if ((flags & VK_QUEUE_GRAPHICS_BIT) == 0) return family;
  }
  return found;
}

// The number of multiprocessors, which the drivers of NVIDIA and AMD report through extensions.
uint32_t MultiprocessorsOf(VkPhysicalDevice device, const std::vector<std::string>& extensions) {
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV, nullptr, 0, 0};
  VkPhysicalDeviceShaderCoreProperties2AMD amd{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD, nullptr, 0, 0};
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, nullptr, {}};
  if (HasExtension(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    properties.pNext = &nvidia;
  } else if (HasExtension(extensions, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME)) {
    properties.pNext = &amd;
  }
  vkGetPhysicalDeviceProperties2(device, &properties);
  return std::max(nvidia.shaderSMCount, amd.activeComputeUnitCount);
}

// Extensions only: Vulkan 1.3 has it as well, but then names the extension too.
void ExamineIntegerDot(VkPhysicalDevice device, const std::vector<std::string>& extensions,
                       Facts& out) {
  if (!HasExtension(extensions, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) return;
  VkPhysicalDeviceShaderIntegerDotProductFeatures features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features, {}};
  vkGetPhysicalDeviceFeatures2(device, &all);
  VkPhysicalDeviceShaderIntegerDotProductProperties speed{};
  speed.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES;
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &speed, {}};
  vkGetPhysicalDeviceProperties2(device, &properties);
  out.integer_dot = features.shaderIntegerDotProduct != 0;
  out.fast_integer_dot = speed.integerDotProduct4x8BitPackedMixedSignednessAccelerated != 0;
}

// Fills in what the device can do; a text says what it lacks.
std::string Examine(VkPhysicalDevice device, Facts& out) {
  vkGetPhysicalDeviceProperties(device, &out.properties);
  vkGetPhysicalDeviceMemoryProperties(device, &out.memory);
  const uint32_t version = out.properties.apiVersion;
  if (version < VK_API_VERSION_1_2) {
    return "it has Vulkan " + std::to_string(VK_API_VERSION_MAJOR(version)) + "." +
           std::to_string(VK_API_VERSION_MINOR(version)) + ", needed is 1.2";
  }
  VkPhysicalDeviceDriverProperties driver{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, nullptr, {}, {}, {}, {}};
  VkPhysicalDeviceSubgroupProperties subgroup{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, &driver, 0, 0, 0, 0};
  VkPhysicalDeviceMaintenance3Properties sizes{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, &subgroup, 0, 0};
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &sizes, {}};
  vkGetPhysicalDeviceProperties2(device, &properties);
  out.driver = std::string(driver.driverName) + " " + driver.driverInfo;
  out.max_allocation = sizes.maxMemoryAllocationSize;
  out.subgroup_size = subgroup.subgroupSize;
  constexpr VkSubgroupFeatureFlags kNeeded =
      VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
      VK_SUBGROUP_FEATURE_SHUFFLE_BIT | VK_SUBGROUP_FEATURE_BALLOT_BIT;
  out.subgroup_arithmetic = (subgroup.supportedOperations & kNeeded) == kNeeded &&
                            (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
                            out.subgroup_size >= 4 && out.subgroup_size <= 128;

  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  VkPhysicalDeviceVulkan11Features features11{};
  features11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  features11.pNext = &features12;
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features11, {}};
  vkGetPhysicalDeviceFeatures2(device, &features);
  out.float64 = features.features.shaderFloat64 != 0;
  const auto extensions = ExtensionsOf(device);
  out.multiprocessors = MultiprocessorsOf(device, extensions);
  ExamineIntegerDot(device, extensions, out);
  out.memory_budget = HasExtension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  out.memory_model =
      features12.vulkanMemoryModel != 0 && features12.vulkanMemoryModelDeviceScope != 0;
  out.matrix_units =
      ExamineMatrixUnits(device, extensions,
                         {.subgroup_size = out.subgroup_size,
                          .shared_bytes = out.properties.limits.maxComputeSharedMemorySize,
                          .subgroup_arithmetic = out.subgroup_arithmetic,
                          .memory_model = out.memory_model,
                          .float16 = features12.shaderFloat16 != 0});

  if (features12.bufferDeviceAddress == 0) return "it lacks the feature bufferDeviceAddress";
  if (features12.timelineSemaphore == 0) return "it lacks the feature timelineSemaphore";
  if (features11.storageBuffer16BitAccess == 0)
    return "it lacks the feature storageBuffer16BitAccess";
  const VkPhysicalDeviceLimits& limits = out.properties.limits;
  const struct {
    const char* name;
    uint32_t found, needed;
  } needs[] = {
      {"maxPushConstantsSize", limits.maxPushConstantsSize, kMinPushConstants},
      {"maxComputeSharedMemorySize", limits.maxComputeSharedMemorySize, kMinSharedMemory},
      {"maxComputeWorkGroupInvocations", limits.maxComputeWorkGroupInvocations, kMinInvocations}};
  for (const auto& need : needs) {
    if (need.found < need.needed) {
      return std::string("its ") + need.name + " is " + std::to_string(need.found) +
             ", needed is " + std::to_string(need.needed);
    }
  }
  const auto family = ComputeFamily(device);
  if (!family) return "it has no queue that computes";
  out.queue_family = family->index;
  out.timestamp_bits = family->timestamp_bits;
  return {};
}

}  // namespace

Instance::Instance(const sdk::Host& host) : host_(host) {
  if (volkInitialize() != VK_SUCCESS) {
    set_reason(
        "the Vulkan loader libvulkan.so.1 is not installed; install it (Debian: libvulkan1) and "
        "the driver of your GPU");
    return;
  }
  try {
    Create();
    Enumerate();
  } catch (const sdk::Error& error) {
    const bool incompatible = error.device_code() == VK_ERROR_INCOMPATIBLE_DRIVER;
    set_reason(error.what() +
               std::string(incompatible
                               ? "; no Vulkan driver is installed, or none for this machine"
                               : ""));
  }
}

void Instance::Create() {
  if (vkEnumerateInstanceVersion == nullptr) {
    throw sdk::Error(RL_UNAVAILABLE, "the Vulkan loader knows 1.0 only, needed is 1.2");
  }
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "rullama";
  application.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  if (WantsValidation()) {
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &extension;
  }
  Check(vkCreateInstance(&info, nullptr, &instance_), "vkCreateInstance");
  volkLoadInstance(instance_);
  if (WantsValidation()) Watch();
}

void Instance::Watch() {
  VkDebugUtilsMessengerCreateInfoEXT info{};
  info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
  info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                         VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = OnMessage;
  info.pUserData = this;
  Check(vkCreateDebugUtilsMessengerEXT(instance_, &info, nullptr, &messenger_),
        "vkCreateDebugUtilsMessengerEXT");
}

VkBool32 VKAPI_PTR Instance::OnMessage(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                       VkDebugUtilsMessageTypeFlagsEXT /*types*/,
                                       const VkDebugUtilsMessengerCallbackDataEXT* data,
                                       void* context) {
  auto& self = *static_cast<Instance*>(context);
  const bool error = (severity & VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT) != 0;
  if (error) ++self.validation_errors_;
  self.host_.Log(error ? RL_LOG_ERROR : RL_LOG_WARNING,
                 data->pMessage != nullptr ? data->pMessage : "a message without text");
  return VK_FALSE;
}

void Instance::Enumerate() {
  uint32_t count = 0;
  Check(vkEnumeratePhysicalDevices(instance_, &count, nullptr), "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> handles(count);
  Check(vkEnumeratePhysicalDevices(instance_, &count, handles.data()),
        "vkEnumeratePhysicalDevices");
  if (count == 0) set_reason("Vulkan finds no device; is the driver of your GPU installed?");
  for (VkPhysicalDevice handle : handles) {
    Facts facts;
    const std::string lack = Examine(handle, facts);
    Add({handle, facts}, facts.properties.deviceName, lack);
  }
}

Instance::~Instance() {
  if (messenger_ != VK_NULL_HANDLE) {
    vkDestroyDebugUtilsMessengerEXT(instance_, messenger_, nullptr);
  }
  if (instance_ != VK_NULL_HANDLE) vkDestroyInstance(instance_, nullptr);
}

std::pair<uint64_t, uint64_t> Instance::Memory(const PhysicalDevice& device) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
  budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  VkPhysicalDeviceMemoryProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
      device.facts.memory_budget ? &budget : nullptr,
      {}};
  vkGetPhysicalDeviceMemoryProperties2(device.handle, &properties);
  const VkPhysicalDeviceMemoryProperties& memory = properties.memoryProperties;
  std::pair<uint64_t, uint64_t> largest{0, 0};
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryHeaps[i];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0 || heap.size <= largest.first) continue;
    const uint64_t free =
        device.facts.memory_budget
            ? budget.heapBudget[i] - std::min(budget.heapUsage[i], budget.heapBudget[i])
            : 0;
    largest = {heap.size, free};
  }
  return largest;
}

}  // namespace rullama::vulkan
