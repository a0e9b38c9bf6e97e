#include "backends/vulkan/matrix_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace rullama::vulkan {
namespace {

using ::testing::HasSubstr;

// What the functions of Vulkan that are replaced here say of the device.
struct Device {
  std::vector<std::string> extensions;
  std::vector<VkCooperativeMatrixPropertiesNV> nv;
  std::vector<VkCooperativeMatrixPropertiesKHR> khr;
  bool full_subgroups = true;
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
          VK_TRUE;
    } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR) {
      reinterpret_cast<VkPhysicalDeviceCooperativeMatrixFeaturesKHR*>(at)->cooperativeMatrix =
          VK_TRUE;
    } else {
      auto& sizes = *reinterpret_cast<VkPhysicalDeviceSubgroupSizeControlFeaturesEXT*>(at);
      sizes.subgroupSizeControl = VK_TRUE;
      sizes.computeFullSubgroups = g_device->full_subgroups ? VK_TRUE : VK_FALSE;
    }
  });
}

void VKAPI_PTR Properties(VkPhysicalDevice /*device*/, VkPhysicalDeviceProperties2* properties) {
  Visit(properties->pNext, [](VkBaseOutStructure* at) {
    if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR) {
      reinterpret_cast<VkPhysicalDeviceCooperativeMatrixPropertiesKHR*>(at)
          ->cooperativeMatrixSupportedStages = VK_SHADER_STAGE_COMPUTE_BIT;
      return;
    }
    auto& sizes = *reinterpret_cast<VkPhysicalDeviceSubgroupSizeControlPropertiesEXT*>(at);
    sizes.requiredSubgroupSizeStages = VK_SHADER_STAGE_COMPUTE_BIT;
    sizes.minSubgroupSize = g_device->least_subgroup;
    sizes.maxSubgroupSize = g_device->largest_subgroup;
    sizes.maxComputeWorkgroupSubgroups = g_device->most_subgroups;
  });
}

template <typename T>
VkResult Give(const std::vector<T>& from, uint32_t* count, T* to) {
  *count = static_cast<uint32_t>(from.size());
  if (to != nullptr) std::copy(from.begin(), from.end(), to);
  return VK_SUCCESS;
}
VkResult VKAPI_PTR NvShapes(VkPhysicalDevice /*device*/, uint32_t* count,
                            VkCooperativeMatrixPropertiesNV* shapes) {
  return Give(g_device->nv, count, shapes);
}
VkResult VKAPI_PTR KhrShapes(VkPhysicalDevice /*device*/, uint32_t* count,
                             VkCooperativeMatrixPropertiesKHR* shapes) {
  return Give(g_device->khr, count, shapes);
}
PFN_vkVoidFunction VKAPI_PTR Function(VkInstance /*instance*/, const char* name) {
  const bool is_khr = std::strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") == 0;
  return is_khr ? reinterpret_cast<PFN_vkVoidFunction>(KhrShapes) : nullptr;
}

MatrixUnits Examined(const Device& device) {
  g_device = &device;
  vkGetPhysicalDeviceFeatures2 = Features;
  vkGetPhysicalDeviceProperties2 = Properties;
  vkGetPhysicalDeviceCooperativeMatrixPropertiesNV = NvShapes;
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

// Subgroups of 64 unless a pipeline asks for 32.
Device WithKhrAlone() {
  Device device = WithBoth();
  device.extensions.erase(device.extensions.begin());
  device.nv.clear();
  device.facts.subgroup_size = device.largest_subgroup = 64;
  return device;
}

TEST(ExamineMatrixUnits, PrefersNv) {
  const MatrixUnits units = Examined(WithBoth());
  EXPECT_EQ(units.nv_lacks, "");
  EXPECT_EQ(units.khr_lacks, "");
  EXPECT_EQ(units.Best(), MatrixForm::kNv);
}

TEST(ExamineMatrixUnits, TakesKhrWhereThereIsNoNv) {
  const MatrixUnits units = Examined(WithKhrAlone());
  EXPECT_THAT(units.nv_lacks, HasSubstr("lacks the extension"));
  EXPECT_EQ(units.khr_lacks, "");
  EXPECT_EQ(units.Best(), MatrixForm::kKhr);
}

TEST(ExamineMatrixUnits, NvNeedsTheDevicesOwnSubgroups) {
  Device device = WithBoth();
  device.facts.subgroup_size = 16;
  const MatrixUnits units = Examined(device);
  EXPECT_EQ(units.nv_lacks, "its subgroups have 16 invocations, needed are 32");
  EXPECT_EQ(units.Best(), MatrixForm::kKhr);
}

TEST(ExamineMatrixUnits, NamesTheShapesOfOthers) {
  Device device = WithKhrAlone();
  device.khr = {Khr(8, 8, 16), Khr(16, 16, 16)};
  device.khr[1].ResultType = device.khr[1].CType = VK_COMPONENT_TYPE_FLOAT16_KHR;
  EXPECT_EQ(Examined(device).khr_lacks,
            "its products are 8 x 8 x 16, needed are products of f16 into f32 in a subgroup of "
            "16 x 16 x 16");
  device.khr.clear();
  EXPECT_THAT(Examined(device).khr_lacks, HasSubstr("none of f16 into f32"));
  EXPECT_EQ(Examined(device).Best(), MatrixForm::kNone);
}

TEST(ExamineMatrixUnits, KhrNeedsFullSubgroupsOf32) {
  Device device = WithKhrAlone();
  device.full_subgroups = false;
  EXPECT_THAT(Examined(device).khr_lacks, HasSubstr("full subgroups"));
  device = WithKhrAlone();
  device.least_subgroup = 64;
  EXPECT_THAT(Examined(device).khr_lacks, HasSubstr("64 to 64 invocations"));
  device = WithKhrAlone();
  device.most_subgroups = 4;
  EXPECT_THAT(Examined(device).khr_lacks, HasSubstr("4 in a workgroup, needed are 8 of 32"));
  device = WithKhrAlone();
  device.extensions.pop_back();
  EXPECT_THAT(Examined(device).khr_lacks, HasSubstr("VK_EXT_subgroup_size_control"));
}

TEST(ExamineMatrixUnits, BothNeedWhatShadersUse) {
  const struct {
    MatrixFacts facts;
    const char* lack;
  } cases[] = {
      {{32, 32768, true, true, true}, "32768 bytes of shared memory, needed are 49152"},
      {{32, 49152, false, true, true}, "subgroup arithmetic"},
      {{32, 49152, true, false, true}, "memory model"},
      {{32, 49152, true, true, false}, "shaderFloat16"},
  };
  for (const auto& c : cases) {
    Device device = WithBoth();
    device.facts = c.facts;
    const MatrixUnits units = Examined(device);
    EXPECT_THAT(units.nv_lacks, HasSubstr(c.lack));
    EXPECT_THAT(units.khr_lacks, HasSubstr(c.lack));
    EXPECT_EQ(units.Best(), MatrixForm::kNone);
  }
}

// The structures that a chain of features enables, in its order.
std::vector<VkStructureType> ChainOf(MatrixForm form, std::vector<const char*>& extensions) {
  MatrixFeatures features;
  VkPhysicalDeviceVulkan12Features features12{};
  features.Enable(form, features12, extensions);
  EXPECT_EQ(features12.shaderFloat16, form == MatrixForm::kNone ? VK_FALSE : VK_TRUE);
  std::vector<VkStructureType> types;
  Visit(features12.pNext, [&](VkBaseOutStructure* at) { types.push_back(at->sType); });
  return types;
}

TEST(MatrixFeatures, EnablesTheOneFormThatIsUsed) {
  std::vector<const char*> none, nv, khr;
  EXPECT_TRUE(ChainOf(MatrixForm::kNone, none).empty());
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(ChainOf(MatrixForm::kNv, nv),
            (std::vector{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV}));
  EXPECT_THAT(nv, ::testing::ElementsAre(::testing::StrEq("VK_NV_cooperative_matrix")));
  EXPECT_EQ(ChainOf(MatrixForm::kKhr, khr),
            (std::vector{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
                         VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR}));
  EXPECT_THAT(khr, ::testing::ElementsAre(::testing::StrEq("VK_KHR_cooperative_matrix"),
                                          ::testing::StrEq("VK_EXT_subgroup_size_control")));
}

}  // namespace
}  // namespace rullama::vulkan
