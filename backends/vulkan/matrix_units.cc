#include "backends/vulkan/matrix_units.h"

namespace rullama::vulkan {
namespace {

constexpr uint32_t kSide = 16;              // rows, columns and terms of a product
constexpr uint32_t kMatrixShared = 49152;   // bytes of shared memory
constexpr uint32_t kMatrixWorkgroup = 256;  // invocations of the largest workgroup

// A product that a device computes.
struct MatrixShape {
  uint32_t rows, columns, terms;
  bool half_into_float;  // of f16 into f32, in a subgroup
};

std::string TextOf(const MatrixShape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + " x " +
         std::to_string(shape.terms);
}

std::string LackOfShape(const std::vector<MatrixShape>& shapes) {
  const std::string needed = ", needed are products of f16 into f32 in a subgroup of " +
                             TextOf({kSide, kSide, kSide, true});
  std::string found;
  for (const MatrixShape& shape : shapes) {
    if (!shape.half_into_float) continue;
    if (shape.rows == kSide && shape.columns == kSide && shape.terms == kSide) return {};
    found += (found.empty() ? "" : ", ") + TextOf(shape);
  }
  return (found.empty() ? "it has none of f16 into f32" : "its products are " + found) + needed;
}

std::string LackOfFacts(const MatrixFacts& facts) {
  if (!facts.float16) return "it lacks the feature shaderFloat16";
  if (!facts.memory_model) return "it lacks the memory model of Vulkan";
  if (!facts.subgroup_arithmetic) return "it lacks subgroup arithmetic";
  if (facts.shared_bytes >= kMatrixShared) return {};
  return "it has " + std::to_string(facts.shared_bytes) + " bytes of shared memory, needed are " +
         std::to_string(kMatrixShared);
}

std::vector<MatrixShape> ShapesOfNv(VkPhysicalDevice device) {
  uint32_t count = 0;
  vkGetPhysicalDeviceCooperativeMatrixPropertiesNV(device, &count, nullptr);
  std::vector<VkCooperativeMatrixPropertiesNV> found(
      count,
      {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV, nullptr, 0, 0, 0, {}, {}, {}, {}, {}});
  vkGetPhysicalDeviceCooperativeMatrixPropertiesNV(device, &count, found.data());
  std::vector<MatrixShape> shapes;
  shapes.reserve(count);
  for (const VkCooperativeMatrixPropertiesNV& s : found) {
    shapes.push_back(
        {s.MSize, s.NSize, s.KSize,
         s.AType == VK_COMPONENT_TYPE_FLOAT16_NV && s.BType == VK_COMPONENT_TYPE_FLOAT16_NV &&
             s.CType == VK_COMPONENT_TYPE_FLOAT32_NV && s.DType == VK_COMPONENT_TYPE_FLOAT32_NV &&
             s.scope == VK_SCOPE_SUBGROUP_NV});
  }
  return shapes;
}

std::string LackOfNv(VkPhysicalDevice device, const std::vector<std::string>& extensions,
                     const MatrixFacts& facts) {
  if (!HasExtension(extensions, VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME) ||
      vkGetPhysicalDeviceCooperativeMatrixPropertiesNV == nullptr) {
    return "it lacks the extension";
  }
  VkPhysicalDeviceCooperativeMatrixFeaturesNV features{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV, nullptr, 0, 0};
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features, {}};
  vkGetPhysicalDeviceFeatures2(device, &all);
  if (features.cooperativeMatrix == 0) return "it lacks the extension's feature";
  if (facts.subgroup_size != kMatrixSubgroup) {
    return "its subgroups have " + std::to_string(facts.subgroup_size) +
           " invocations, needed are " + std::to_string(kMatrixSubgroup);
  }
  return LackOfShape(ShapesOfNv(device));
}

// Whether pipelines may ask for full subgroups of kMatrixSubgroup.
std::string LackOfSubgroups(VkPhysicalDevice device, const std::vector<std::string>& extensions) {
  if (!HasExtension(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) {
    return "it lacks the extension " VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
  }
  VkPhysicalDeviceSubgroupSizeControlFeaturesEXT features{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT, nullptr, 0, 0};
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features, {}};
  vkGetPhysicalDeviceFeatures2(device, &all);
  if (features.subgroupSizeControl == 0 || features.computeFullSubgroups == 0) {
    return "its pipelines cannot ask for full subgroups of one size";
  }
  VkPhysicalDeviceSubgroupSizeControlPropertiesEXT sizes{};
  sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT;
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &sizes, {}};
  vkGetPhysicalDeviceProperties2(device, &properties);
  if ((sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0 ||
      sizes.minSubgroupSize > kMatrixSubgroup || sizes.maxSubgroupSize < kMatrixSubgroup ||
      sizes.maxComputeWorkgroupSubgroups < kMatrixWorkgroup / kMatrixSubgroup) {
    return "its pipelines may ask for subgroups of " + std::to_string(sizes.minSubgroupSize) +
           " to " + std::to_string(sizes.maxSubgroupSize) + " invocations, " +
           std::to_string(sizes.maxComputeWorkgroupSubgroups) + " in a workgroup, needed are " +
           std::to_string(kMatrixWorkgroup / kMatrixSubgroup) + " of " +
           std::to_string(kMatrixSubgroup);
  }
  return {};
}

using GetKhrProperties = PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR;

std::vector<MatrixShape> ShapesOfKhr(VkPhysicalDevice device, GetKhrProperties get_properties) {
  uint32_t count = 0;
  get_properties(device, &count, nullptr);
  VkCooperativeMatrixPropertiesKHR empty{};
  empty.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  std::vector<VkCooperativeMatrixPropertiesKHR> found(count, empty);
  get_properties(device, &count, found.data());
  std::vector<MatrixShape> shapes;
  shapes.reserve(count);
  for (const VkCooperativeMatrixPropertiesKHR& s : found) {
    shapes.push_back({s.MSize, s.NSize, s.KSize,
                      s.AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
                          s.BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
                          s.CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                          s.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                          s.saturatingAccumulation == 0 && s.scope == VK_SCOPE_SUBGROUP_KHR});
  }
  return shapes;
}

std::string LackOfKhr(VkPhysicalDevice device, const std::vector<std::string>& extensions) {
  const auto get_properties = reinterpret_cast<GetKhrProperties>(vkGetInstanceProcAddr(
      volkGetLoadedInstance(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (!HasExtension(extensions, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) ||
      get_properties == nullptr) {
    return "it lacks the extension";
  }
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR features{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, nullptr, 0, 0};
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features, {}};
  vkGetPhysicalDeviceFeatures2(device, &all);
  VkPhysicalDeviceCooperativeMatrixPropertiesKHR stages{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR, nullptr, 0};
  VkPhysicalDeviceProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &stages, {}};
  vkGetPhysicalDeviceProperties2(device, &properties);
  if (features.cooperativeMatrix == 0 ||
      (stages.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0) {
    return "it lacks the extension's feature in compute shaders";
  }
  const std::string lack = LackOfShape(ShapesOfKhr(device, get_properties));
  return lack.empty() ? LackOfSubgroups(device, extensions) : lack;
}

}  // namespace

MatrixUnits ExamineMatrixUnits(VkPhysicalDevice device, const std::vector<std::string>& extensions,
                               const MatrixFacts& facts) {
  MatrixUnits units;
  units.nv_lacks = LackOfNv(device, extensions, facts);
  units.khr_lacks = LackOfKhr(device, extensions);
  const std::string both = LackOfFacts(facts);
  if (units.nv_lacks.empty()) units.nv_lacks = both;
  if (units.khr_lacks.empty()) units.khr_lacks = both;
  return units;
}

void MatrixFeatures::Enable(MatrixForm form, VkPhysicalDeviceVulkan12Features& features,
                            std::vector<const char*>& extensions) {
  if (form == MatrixForm::kNone) return;
  features.shaderFloat16 = VK_TRUE;
  if (form == MatrixForm::kNv) {
    extensions.push_back(VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME);
    nv_.pNext = features.pNext;
    features.pNext = &nv_;
    return;
  }
  extensions.push_back(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  khr_.pNext = features.pNext;
  sizes_.pNext = &khr_;
  features.pNext = &sizes_;
}

}  // namespace rullama::vulkan
