// The Vulkan instance and the physical devices that can run this backend.
//
// Thread safety: made once; afterwards read only.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/gpu/found_devices.h"
#include "backends/vulkan/api.h"
#include "backends/vulkan/matrix_units.h"

namespace rullama::vulkan {

// The properties of a device that kernels depend on.
struct Facts {
  VkPhysicalDeviceProperties properties{};
  VkPhysicalDeviceMemoryProperties memory{};
  std::string driver;           // name and version
  uint32_t queue_family = 0;    // that computes
  uint32_t timestamp_bits = 0;  // of that family; 0: it has no timestamps
  uint64_t max_allocation = 0;  // bytes
  uint32_t subgroup_size = 1;
  uint32_t multiprocessors = 0;      // 0: the driver does not say
  bool subgroup_arithmetic = false;  // reductions and shuffles within a subgroup
  bool float64 = false;
  bool memory_model = false;      // Vulkan's own, with barriers across the device
  bool integer_dot = false;       // dot products of four bytes in a word
  bool fast_integer_dot = false;  // and in one instruction
  bool memory_budget = false;     // VK_EXT_memory_budget
  MatrixUnits matrix_units;

  [[nodiscard]] bool IsSoftware() const {  // the device is a CPU
    return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  }
};

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  Facts facts;
};

class Instance : public gpu::FoundDevices<PhysicalDevice> {
 public:
  // Never throws for want of a loader or a driver: then there are no devices and a reason. With
  // RULLAMA_VULKAN_VALIDATION=1 in the environment the validation layer watches every call.
  explicit Instance(const sdk::Host& host);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Memory of the largest heap on the device: in all, and free now.
  [[nodiscard]] static std::pair<uint64_t, uint64_t> Memory(const PhysicalDevice& device);
  // The number of errors that the validation layer has reported.
  [[nodiscard]] uint32_t validation_errors() const { return validation_errors_; }

 private:
  void Create();
  void Watch();
  void Enumerate();
  static VkBool32 VKAPI_PTR OnMessage(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                      VkDebugUtilsMessageTypeFlagsEXT types,
                                      const VkDebugUtilsMessengerCallbackDataEXT* data,
                                      void* context);

  sdk::Host host_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  std::atomic<uint32_t> validation_errors_{0};
};

}  // namespace rullama::vulkan
