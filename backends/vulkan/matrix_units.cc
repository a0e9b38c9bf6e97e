#include "backends/vulkan/matrix_units.h"

#include <algorithm>

#include "backends/gpu/target.h"

namespace rullama::vulkan {
namespace {

constexpr uint32_t kMatrixShared = 49152;  // bytes of shared memory
constexpr const char* kNoFunction = "the Vulkan loader gives no function that lists its products";

// A product that a device computes.
struct MatrixShape {
  uint32_t rows, columns, terms;
  bool half_into_float;  // of f16 into f32, by a subgroup
};

std::string TextOf(const MatrixShape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + " x " +
         std::to_string(shape.terms);
}

std::string LackOfShape(const std::vector<MatrixShape>& shapes) {
  using gpu::kMatrixSide;
  std::vector<std::string> found;
  for (const MatrixShape& shape : shapes) {
    if (!shape.half_into_float) continue;
    if (shape.rows == kMatrixSide && shape.columns == kMatrixSide && shape.terms == kMatrixSide) {
      return {};
    }
    const std::string text = TextOf(shape);
    if (std::ranges::find(found, text) == found.end()) found.push_back(text);
  }
  std::string lack = found.empty() ? "it multiplies no f16 into f32" : "it multiplies ";
  for (const std::string& text : found) lack += (&text == found.data() ? "" : ", ") + text;
  return lack + "; needed is " + TextOf({kMatrixSide, kMatrixSide, kMatrixSide, true}) +
         ", f16 into f32, by a subgroup";
}

std::string LackOfFacts(const MatrixFacts& facts) {
  if (!facts.float16) return "it lacks the feature shaderFloat16";
  if (!facts.memory_model) return "it lacks the memory model of Vulkan";
  if (!facts.subgroup_arithmetic) return "it lacks subgroup arithmetic";
  if (facts.shared_bytes >= kMatrixShared) return {};
  return "it has " + std::to_string(facts.shared_bytes) + " bytes of shared memory, needed are " +
         std::to_string(kMatrixShared);
}

// The structures like `empty` that a function of the driver lists. `lack`: why there are none.
template <typename T, typename Function>
std::vector<T> ListOf(VkPhysicalDevice device, Function function, const T& empty,
                      std::string& lack) {
  uint32_t count = 0;
  VkResult result = function(device, &count, nullptr);
  std::vector<T> found(count, empty);
  if (result == VK_SUCCESS) result = function(device, &count, found.data());
  if (result != VK_SUCCESS) lack = "asked for its products it gives " + NameOf(result);
  found.resize(count, empty);
  return found;
}

std::string LackOfNvShape(VkPhysicalDevice device) {
  const VkCooperativeMatrixPropertiesNV empty{
      VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV, nullptr, 0, 0, 0, {}, {}, {}, {}, {}};
  std::string lack;
  std::vector<MatrixShape> shapes;
  for (const VkCooperativeMatrixPropertiesNV& s :
       ListOf(device, vkGetPhysicalDeviceCooperativeMatrixPropertiesNV, empty, lack)) {
    shapes.push_back(
        {s.MSize, s.NSize, s.KSize,
         s.AType == VK_COMPONENT_TYPE_FLOAT16_NV && s.BType == VK_COMPONENT_TYPE_FLOAT16_NV &&
             s.CType == VK_COMPONENT_TYPE_FLOAT32_NV && s.DType == VK_COMPONENT_TYPE_FLOAT32_NV &&
             s.scope == VK_SCOPE_SUBGROUP_NV});
  }
  return lack.empty() ? LackOfShape(shapes) : lack;
}

// The reason why compute shaders cannot use an extension's matrices; empty if they can. `Features`
// and `Properties`: the extension's structures.
template <typename Features, typename Properties>
std::string LackOfMatrices(VkPhysicalDevice device, Features features, Properties properties) {
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features, {}};
  vkGetPhysicalDeviceFeatures2(device, &all);
  if (features.cooperativeMatrix == 0) return "it lacks the feature cooperativeMatrix";
  VkPhysicalDeviceProperties2 chain{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &properties, {}};
  vkGetPhysicalDeviceProperties2(device, &chain);
  if ((properties.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0) return {};
  return "its compute shaders have no matrices";
}

std::string LackOfNv(VkPhysicalDevice device, const std::vector<std::string>& extensions,
                     const MatrixFacts& facts) {
  if (!HasExtension(extensions, VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME)) {
    return "it lacks the extension";
  }
  if (vkGetPhysicalDeviceCooperativeMatrixPropertiesNV == nullptr) return kNoFunction;
  std::string lack = LackOfMatrices(
      device,
      VkPhysicalDeviceCooperativeMatrixFeaturesNV{
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV, nullptr, 0, 0},
      VkPhysicalDeviceCooperativeMatrixPropertiesNV{
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_NV, nullptr, 0});
  if (!lack.empty()) return lack;
  if (facts.subgroup_size != gpu::kMatrixSubgroup) {
    return "its subgroups have " + std::to_string(facts.subgroup_size) +
           " invocations, needed are " + std::to_string(gpu::kMatrixSubgroup);
  }
  return LackOfNvShape(device);
}

// The reason why pipelines cannot ask for full subgroups of kMatrixSubgroup; empty if they can.
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
  using gpu::kMatrixSubgroup;
  constexpr uint32_t kSubgroups = gpu::kMaxMatrixThreads / kMatrixSubgroup;
  if ((sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0) {
    return "its compute pipelines cannot ask for a size of subgroups";
  }
  if (sizes.minSubgroupSize <= kMatrixSubgroup && sizes.maxSubgroupSize >= kMatrixSubgroup &&
      sizes.maxComputeWorkgroupSubgroups >= kSubgroups) {
    return {};
  }
  return "its pipelines may ask for subgroups of " + std::to_string(sizes.minSubgroupSize) +
         " to " + std::to_string(sizes.maxSubgroupSize) + " invocations, " +
         std::to_string(sizes.maxComputeWorkgroupSubgroups) + " in a workgroup, needed are " +
         std::to_string(kSubgroups) + " of " + std::to_string(kMatrixSubgroup);
}

using GetKhrProperties = PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR;

std::string LackOfKhrShape(VkPhysicalDevice device, GetKhrProperties get_properties) {
  VkCooperativeMatrixPropertiesKHR empty{};
  empty.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  std::string lack;
  std::vector<MatrixShape> shapes;
  for (const VkCooperativeMatrixPropertiesKHR& s : ListOf(device, get_properties, empty, lack)) {
    shapes.push_back({s.MSize, s.NSize, s.KSize,
                      s.AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
                          s.BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
                          s.CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                          s.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                          s.saturatingAccumulation == 0 && s.scope == VK_SCOPE_SUBGROUP_KHR});
  }
  return lack.empty() ? LackOfShape(shapes) : lack;
}

std::string LackOfKhr(VkPhysicalDevice device, const std::vector<std::string>& extensions) {
  if (!HasExtension(extensions, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) {
    return "it lacks the extension";
  }
  const auto get_properties = reinterpret_cast<GetKhrProperties>(vkGetInstanceProcAddr(
      volkGetLoadedInstance(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (get_properties == nullptr) return kNoFunction;
  std::string lack = LackOfMatrices(
      device,
      VkPhysicalDeviceCooperativeMatrixFeaturesKHR{
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, nullptr, 0, 0},
      VkPhysicalDeviceCooperativeMatrixPropertiesKHR{
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR, nullptr, 0});
  if (lack.empty()) lack = LackOfKhrShape(device, get_properties);
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

MatrixFeatures::MatrixFeatures(MatrixExtension extension,
                               VkPhysicalDeviceVulkan12Features& features,
                               std::vector<const char*>& extensions) {
  switch (extension) {
    case MatrixExtension::kNone:
      return;
    case MatrixExtension::kNv:
      extensions.push_back(VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME);
      nv_.pNext = features.pNext;
      features.pNext = &nv_;
      break;
    case MatrixExtension::kKhr:
      extensions.push_back(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
      extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
      khr_.pNext = features.pNext;
      sizes_.pNext = &khr_;
      features.pNext = &sizes_;
      break;
  }
  features.shaderFloat16 = VK_TRUE;
}

}  // namespace rullama::vulkan
