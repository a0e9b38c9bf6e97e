#include "backends/vulkan/matrix_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace rullama::vulkan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

// A device as the functions of Vulkan that are replaced here describe it.
struct Device {
  std::vector<std::string> extensions;
  std::vector<VkCooperativeMatrixPropertiesNV> nv;
  std::vector<VkCooperativeMatrixPropertiesKHR> khr;
  VkResult nv_result = VK_SUCCESS, khr_result = VK_SUCCESS;  // of listing them
  bool has_nv_function = true, has_khr_function = true;
  VkBool32 nv_feature = VK_TRUE, khr_feature = VK_TRUE;
  VkShaderStageFlags nv_stages = VK_SHADER_STAGE_COMPUTE_BIT,
                     khr_stages = VK_SHADER_STAGE_COMPUTE_BIT;
  VkBool32 size_control = VK_TRUE, full_subgroups = VK_TRUE;
  VkShaderStageFlags subgroup_stages = VK_SHADER_STAGE_COMPUTE_BIT;
  uint32_t least_subgroup = 32, largest_subgroup = 32, most_subgroups = 32;
  MatrixFacts facts{.subgroup_size = 32,
                    .shared_bytes = 49152,
                    .subgroup_arithmetic = true,
                    .memory_model = true,
                    .float16 = true};
};

const Device* g_device = nullptr;  // the one that is examined

void Visit(void* chain, const auto& fill) {
  for (auto* at = static_cast<VkBaseOutStructure*>(chain); at != nullptr; at = at->pNext) fill(at);
}

void VKAPI_PTR Features(VkPhysicalDevice /*device*/, VkPhysicalDeviceFeatures2* features) {
  Visit(features->pNext, [](VkBaseOutStructure* at) {
    if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV) {
      reinterpret_cast<VkPhysicalDeviceCooperativeMatrixFeaturesNV*>(at)->cooperativeMatrix =
          g_device->nv_feature;
    } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR) {
      reinterpret_cast<VkPhysicalDeviceCooperativeMatrixFeaturesKHR*>(at)->cooperativeMatrix =
          g_device->khr_feature;
    } else {
      auto& sizes = *reinterpret_cast<VkPhysicalDeviceSubgroupSizeControlFeaturesEXT*>(at);
      sizes.subgroupSizeControl = g_device->size_control;
      sizes.computeFullSubgroups = g_device->full_subgroups;
    }
  });
}

void VKAPI_PTR Properties(VkPhysicalDevice /*device*/, VkPhysicalDeviceProperties2* properties) {
  Visit(properties->pNext, [](VkBaseOutStructure* at) {
    if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_NV) {
      reinterpret_cast<VkPhysicalDeviceCooperativeMatrixPropertiesNV*>(at)
          ->cooperativeMatrixSupportedStages = g_device->nv_stages;
    } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR) {
      reinterpret_cast<VkPhysicalDeviceCooperativeMatrixPropertiesKHR*>(at)
          ->cooperativeMatrixSupportedStages = g_device->khr_stages;
    } else {
      auto& sizes = *reinterpret_cast<VkPhysicalDeviceSubgroupSizeControlPropertiesEXT*>(at);
      sizes.requiredSubgroupSizeStages = g_device->subgroup_stages;
      sizes.minSubgroupSize = g_device->least_subgroup;
      sizes.maxSubgroupSize = g_device->largest_subgroup;
      sizes.maxComputeWorkgroupSubgroups = g_device->most_subgroups;
    }
  });
}

template <typename T>
VkResult Give(const std::vector<T>& from, VkResult result, uint32_t* count, T* to) {
  *count = static_cast<uint32_t>(from.size());
  if (to != nullptr) std::copy(from.begin(), from.end(), to);
  return result;
}
VkResult VKAPI_PTR NvShapes(VkPhysicalDevice /*device*/, uint32_t* count,
                            VkCooperativeMatrixPropertiesNV* shapes) {
  return Give(g_device->nv, g_device->nv_result, count, shapes);
}
VkResult VKAPI_PTR KhrShapes(VkPhysicalDevice /*device*/, uint32_t* count,
                             VkCooperativeMatrixPropertiesKHR* shapes) {
  return Give(g_device->khr, g_device->khr_result, count, shapes);
}
PFN_vkVoidFunction VKAPI_PTR Function(VkInstance /*instance*/, const char* name) {
  const bool is_khr = std::strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") == 0;
  return is_khr && g_device->has_khr_function ? reinterpret_cast<PFN_vkVoidFunction>(KhrShapes)
                                              : nullptr;
}

MatrixUnits Examined(const Device& device) {
  g_device = &device;
  vkGetPhysicalDeviceFeatures2 = Features;
  vkGetPhysicalDeviceProperties2 = Properties;
  vkGetPhysicalDeviceCooperativeMatrixPropertiesNV = device.has_nv_function ? NvShapes : nullptr;
  vkGetInstanceProcAddr = Function;
  return ExamineMatrixUnits(VK_NULL_HANDLE, device.extensions, device.facts);
}

VkCooperativeMatrixPropertiesNV Nv(uint32_t rows, uint32_t columns, uint32_t terms) {
  VkCooperativeMatrixPropertiesNV shape{};
  shape.MSize = rows;
  shape.NSize = columns;
  shape.KSize = terms;
  shape.AType = shape.BType = VK_COMPONENT_TYPE_FLOAT16_NV;
  shape.CType = shape.DType = VK_COMPONENT_TYPE_FLOAT32_NV;
  shape.scope = VK_SCOPE_SUBGROUP_NV;
  return shape;
}

VkCooperativeMatrixPropertiesKHR Khr(uint32_t rows, uint32_t columns, uint32_t terms) {
  VkCooperativeMatrixPropertiesKHR shape{};
  shape.MSize = rows;
  shape.NSize = columns;
  shape.KSize = terms;
  shape.AType = shape.BType = VK_COMPONENT_TYPE_FLOAT16_KHR;
  shape.CType = shape.ResultType = VK_COMPONENT_TYPE_FLOAT32_KHR;
  shape.scope = VK_SCOPE_SUBGROUP_KHR;
  return shape;
}

Device WithBoth() {
  return {.extensions = {"VK_NV_cooperative_matrix", "VK_KHR_cooperative_matrix",
                         "VK_EXT_subgroup_size_control"},
          .nv = {Nv(16, 8, 16), Nv(16, 16, 16)},
          .khr = {Khr(16, 8, 16), Khr(16, 16, 16)}};
}

TEST(ExamineMatrixUnits, PrefersKhr) {
  const MatrixUnits units = Examined(WithBoth());
  EXPECT_EQ(units.nv_lacks, "");
  EXPECT_EQ(units.khr_lacks, "");
  EXPECT_EQ(units.Best(), MatrixExtension::kKhr);
}

TEST(ExamineMatrixUnits, TakesNvWhereThereIsNoKhr) {
  Device device = WithBoth();
  device.extensions = {"VK_NV_cooperative_matrix"};
  const MatrixUnits units = Examined(device);
  EXPECT_EQ(units.nv_lacks, "");
  EXPECT_EQ(units.khr_lacks, "it lacks the extension");
  EXPECT_EQ(units.Best(), MatrixExtension::kNv);
}

TEST(ExamineMatrixUnits, TakesKhrWithSubgroupsThatPipelinesAskFor) {
  Device device = WithBoth();
  device.extensions = {"VK_KHR_cooperative_matrix", "VK_EXT_subgroup_size_control"};
  device.facts.subgroup_size = device.largest_subgroup = 64;
  const MatrixUnits units = Examined(device);
  EXPECT_EQ(units.nv_lacks, "it lacks the extension");
  EXPECT_EQ(units.khr_lacks, "");
  EXPECT_EQ(units.Best(), MatrixExtension::kKhr);
}

// A device that lacks one thing.
struct Lacking {
  std::string name;
  void (*change)(Device&);
  std::string nv, khr;  // parts of what it lacks; empty: nothing
};
void PrintTo(const Lacking& lacking, std::ostream* out) { *out << lacking.name; }

constexpr const char* kNoProduct = "it multiplies no f16 into f32; needed is 16 x 16 x 16";

// Devices whose products of 16 x 16 x 16 have another type or scope.
std::vector<Lacking> OtherProducts() {
  constexpr auto kNv16 = VK_COMPONENT_TYPE_FLOAT16_NV, kNv32 = VK_COMPONENT_TYPE_FLOAT32_NV;
  constexpr auto kKhr16 = VK_COMPONENT_TYPE_FLOAT16_KHR, kKhr32 = VK_COMPONENT_TYPE_FLOAT32_KHR;
  std::vector<Lacking> all = {
      {"AOfNv", [](Device& d) { d.nv[0].AType = kNv32; }, kNoProduct, ""},
      {"BOfNv", [](Device& d) { d.nv[0].BType = kNv32; }, kNoProduct, ""},
      {"COfNv", [](Device& d) { d.nv[0].CType = kNv16; }, kNoProduct, ""},
      {"DOfNv", [](Device& d) { d.nv[0].DType = kNv16; }, kNoProduct, ""},
      {"ScopeOfNv", [](Device& d) { d.nv[0].scope = VK_SCOPE_WORKGROUP_NV; }, kNoProduct, ""},
      {"AOfKhr", [](Device& d) { d.khr[0].AType = kKhr32; }, "", kNoProduct},
      {"BOfKhr", [](Device& d) { d.khr[0].BType = kKhr32; }, "", kNoProduct},
      {"COfKhr", [](Device& d) { d.khr[0].CType = kKhr16; }, "", kNoProduct},
      {"ResultOfKhr", [](Device& d) { d.khr[0].ResultType = kKhr16; }, "", kNoProduct},
      {"SaturationOfKhr", [](Device& d) { d.khr[0].saturatingAccumulation = 1; }, "", kNoProduct},
      {"ScopeOfKhr", [](Device& d) { d.khr[0].scope = VK_SCOPE_WORKGROUP_NV; }, "", kNoProduct},
      {"ProductsOfNv", [](Device& d) { d.nv.clear(); }, kNoProduct, ""},
      {"ProductsOfKhr", [](Device& d) { d.khr.clear(); }, "", kNoProduct},
  };
  return all;
}

std::vector<Lacking> OtherSubgroups() {
  constexpr const char* kNoSize = "cannot ask for full subgroups";
  return {
      {"SizeControl", [](Device& d) { d.size_control = VK_FALSE; }, "", kNoSize},
      {"FullSubgroups", [](Device& d) { d.full_subgroups = VK_FALSE; }, "", kNoSize},
      {"StagesOfSubgroups", [](Device& d) { d.subgroup_stages = VK_SHADER_STAGE_VERTEX_BIT; }, "",
       "compute pipelines cannot ask"},
      {"SmallSubgroups", [](Device& d) { d.least_subgroup = 64; }, "", "64 to 32 invocations"},
      {"LargeSubgroups", [](Device& d) { d.largest_subgroup = 16; }, "", "32 to 16 invocations"},
      {"Subgroups", [](Device& d) { d.most_subgroups = 7; }, "",
       "7 in a workgroup, needed are 8 of 32"},
      {"SizeExtension", [](Device& d) { d.extensions.pop_back(); }, "",
       "VK_EXT_subgroup_size_control"},
      {"OwnSubgroups", [](Device& d) { d.facts.subgroup_size = 16; },
       "its subgroups have 16 invocations, needed are 32", ""},
  };
}

std::vector<Lacking> OtherExtensions() {
  constexpr const char* kFeature = "it lacks the feature cooperativeMatrix";
  constexpr const char* kStages = "its compute shaders have no matrices";
  constexpr const char* kFunction = "the Vulkan loader gives no function";
  constexpr const char* kFailed = "asked for its products it gives VK_ERROR_OUT_OF_HOST_MEMORY";
  return {
      {"FeatureOfNv", [](Device& d) { d.nv_feature = VK_FALSE; }, kFeature, ""},
      {"FeatureOfKhr", [](Device& d) { d.khr_feature = VK_FALSE; }, "", kFeature},
      {"StagesOfNv", [](Device& d) { d.nv_stages = VK_SHADER_STAGE_VERTEX_BIT; }, kStages, ""},
      {"StagesOfKhr", [](Device& d) { d.khr_stages = VK_SHADER_STAGE_VERTEX_BIT; }, "", kStages},
      {"FunctionOfNv", [](Device& d) { d.has_nv_function = false; }, kFunction, ""},
      {"FunctionOfKhr", [](Device& d) { d.has_khr_function = false; }, "", kFunction},
      {"ListOfNv", [](Device& d) { d.nv_result = VK_ERROR_OUT_OF_HOST_MEMORY; }, kFailed, ""},
      {"ListOfKhr", [](Device& d) { d.khr_result = VK_ERROR_OUT_OF_HOST_MEMORY; }, "", kFailed},
  };
}

std::vector<Lacking> OtherFacts() {
  constexpr const char* kShared = "32768 bytes of shared memory, needed are 49152";
  return {
      {"Shared", [](Device& d) { d.facts.shared_bytes = 32768; }, kShared, kShared},
      {"Arithmetic", [](Device& d) { d.facts.subgroup_arithmetic = false; }, "subgroup arithmetic",
       "subgroup arithmetic"},
      {"MemoryModel", [](Device& d) { d.facts.memory_model = false; }, "memory model",
       "memory model"},
      {"Float16", [](Device& d) { d.facts.float16 = false; }, "shaderFloat16", "shaderFloat16"},
  };
}

class LackingDevice : public ::testing::TestWithParam<Lacking> {};

void ExpectLack(const std::string& lack, const std::string& expected) {
  if (expected.empty()) {
    EXPECT_EQ(lack, "");
  } else {
    EXPECT_THAT(lack, HasSubstr(expected));
  }
}

TEST_P(LackingDevice, SaysWhatItLacks) {
  Device device = WithBoth();
  device.nv = {Nv(16, 16, 16)};
  device.khr = {Khr(16, 16, 16)};
  GetParam().change(device);
  const MatrixUnits units = Examined(device);
  ExpectLack(units.nv_lacks, GetParam().nv);
  ExpectLack(units.khr_lacks, GetParam().khr);
}

std::string NameOfLack(const ::testing::TestParamInfo<Lacking>& test) { return test.param.name; }
INSTANTIATE_TEST_SUITE_P(Products, LackingDevice, ::testing::ValuesIn(OtherProducts()), NameOfLack);
INSTANTIATE_TEST_SUITE_P(Subgroups, LackingDevice, ::testing::ValuesIn(OtherSubgroups()),
                         NameOfLack);
INSTANTIATE_TEST_SUITE_P(Extensions, LackingDevice, ::testing::ValuesIn(OtherExtensions()),
                         NameOfLack);
INSTANTIATE_TEST_SUITE_P(Facts, LackingDevice, ::testing::ValuesIn(OtherFacts()), NameOfLack);

TEST(ExamineMatrixUnits, NamesEachShapeOfOthersOnce) {
  Device device = WithBoth();
  device.khr = {Khr(8, 8, 16), Khr(8, 8, 16), Khr(16, 16, 8), Khr(16, 8, 16), Khr(8, 16, 16)};
  EXPECT_EQ(Examined(device).khr_lacks,
            "it multiplies 8 x 8 x 16, 16 x 16 x 8, 16 x 8 x 16, 8 x 16 x 16; needed is "
            "16 x 16 x 16, f16 into f32, by a subgroup");
}

// The structures of features that a device is created with.
struct Enabled {
  std::vector<const char*> extensions = {"VK_EXT_memory_budget"};
  VkPhysicalDeviceVulkan12Features features12{};
  std::vector<VkStructureType> chain;
};

// In front of another structure. All that is found in it but that one has only the features that
// shaders use.
Enabled EnabledFor(MatrixExtension extension) {
  Enabled enabled;
  VkPhysicalDeviceShaderIntegerDotProductFeatures before{};
  before.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  enabled.features12.pNext = &before;
  const MatrixFeatures features(extension, enabled.features12, enabled.extensions);
  Visit(enabled.features12.pNext, [&](VkBaseOutStructure* at) {
    enabled.chain.push_back(at->sType);
    if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV) {
      const auto& nv = *reinterpret_cast<VkPhysicalDeviceCooperativeMatrixFeaturesNV*>(at);
      EXPECT_EQ(nv.cooperativeMatrix, VK_TRUE);
      EXPECT_EQ(nv.cooperativeMatrixRobustBufferAccess, VK_FALSE);
    } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR) {
      const auto& khr = *reinterpret_cast<VkPhysicalDeviceCooperativeMatrixFeaturesKHR*>(at);
      EXPECT_EQ(khr.cooperativeMatrix, VK_TRUE);
      EXPECT_EQ(khr.cooperativeMatrixRobustBufferAccess, VK_FALSE);
    } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT) {
      const auto& sizes = *reinterpret_cast<VkPhysicalDeviceSubgroupSizeControlFeaturesEXT*>(at);
      EXPECT_EQ(sizes.subgroupSizeControl, VK_TRUE);
      EXPECT_EQ(sizes.computeFullSubgroups, VK_TRUE);
    }
  });
  enabled.features12.pNext = nullptr;
  return enabled;
}

TEST(MatrixFeatures, EnablesTheExtensionInUse) {
  constexpr auto kBefore = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  const Enabled none = EnabledFor(MatrixExtension::kNone);
  EXPECT_EQ(none.features12.shaderFloat16, VK_FALSE);
  EXPECT_THAT(none.chain, ElementsAre(kBefore));
  EXPECT_THAT(none.extensions, ElementsAre(StrEq("VK_EXT_memory_budget")));
  const Enabled nv = EnabledFor(MatrixExtension::kNv);
  EXPECT_EQ(nv.features12.shaderFloat16, VK_TRUE);
  EXPECT_THAT(
      nv.chain,
      ElementsAre(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV, kBefore));
  EXPECT_THAT(nv.extensions,
              ElementsAre(StrEq("VK_EXT_memory_budget"), StrEq("VK_NV_cooperative_matrix")));
  const Enabled khr = EnabledFor(MatrixExtension::kKhr);
  EXPECT_EQ(khr.features12.shaderFloat16, VK_TRUE);
  EXPECT_THAT(
      khr.chain,
      ElementsAre(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
                  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, kBefore));
  EXPECT_THAT(khr.extensions,
              ElementsAre(StrEq("VK_EXT_memory_budget"), StrEq("VK_KHR_cooperative_matrix"),
                          StrEq("VK_EXT_subgroup_size_control")));
}

}  // namespace
}  // namespace rullama::vulkan
