// Matrix units of devices, which Vulkan calls cooperative matrices. Two extensions reach them:
// VK_NV_cooperative_matrix, for which the shaders are written, and VK_KHR_cooperative_matrix, for
// which they are rewritten (khr_matrices.h).
//
// Thread safety: any thread may examine a device; objects here belong to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/vulkan/khr_cooperative_matrix.h"

namespace rullama::vulkan {

// The extension through which shaders use matrix units.
enum class MatrixExtension : uint8_t { kNone, kNv, kKhr };

// The shaders multiply 16 x 16 x 16 numbers of f16 into f32 in a subgroup of 32, with the memory
// model of Vulkan, subgroup arithmetic and 48 KiB of shared memory. With NV, 32 has to be the
// device's own subgroup size. With KHR, pipelines ask for it, and for full subgroups, which SPIR-V
// before 1.6 has to have (VUID-RuntimeSpirv-OpTypeCooperativeMatrixKHR-10770).
struct MatrixUnits {
  std::string nv_lacks = "it was not examined";  // what keeps the shaders from it; empty: nothing
  std::string khr_lacks = nv_lacks;              // likewise

  // KHR if the device can use both: it was the faster one (docs/lab/vulkan.md).
  [[nodiscard]] MatrixExtension Best() const {
    if (khr_lacks.empty()) return MatrixExtension::kKhr;
    return nv_lacks.empty() ? MatrixExtension::kNv : MatrixExtension::kNone;
  }
};

// The properties of a device that kernels for matrix units need besides its extensions.
struct MatrixFacts {
  uint32_t subgroup_size;
  uint32_t shared_bytes;
  bool subgroup_arithmetic;
  bool memory_model;
  bool float16;
};

// `extensions`: those of the device.
MatrixUnits ExamineMatrixUnits(VkPhysicalDevice device, const std::vector<std::string>& extensions,
                               const MatrixFacts& facts);

// The features and extensions that a device is created with to use matrix units. Must outlive the
// creation.
class MatrixFeatures {
 public:
  // Adds the extensions, and the features to the front of `features`' chain.
  MatrixFeatures(MatrixExtension extension, VkPhysicalDeviceVulkan12Features& features,
                 std::vector<const char*>& extensions);
  MatrixFeatures(const MatrixFeatures&) = delete;  // the chain points to it
  MatrixFeatures& operator=(const MatrixFeatures&) = delete;

 private:
  VkPhysicalDeviceCooperativeMatrixFeaturesNV nv_{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV, nullptr, VK_TRUE, VK_FALSE};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR khr_{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, nullptr, VK_TRUE,
      VK_FALSE};
  VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes_{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT, nullptr, VK_TRUE,
      VK_TRUE};
};

}  // namespace rullama::vulkan
