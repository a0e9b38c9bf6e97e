#include "backends/vulkan/target.h"

#include <gtest/gtest.h>

namespace rullama::vulkan {
namespace {

gpu::Capabilities CapabilitiesOf(uint32_t vendor, VkPhysicalDeviceType type) {
  Facts facts;
  facts.properties.vendorID = vendor;
  facts.properties.deviceType = type;
  facts.properties.limits.maxComputeSharedMemorySize = 49152;
  facts.properties.limits.maxComputeWorkGroupInvocations = 1024;
  return TargetFor(facts, {.subgroups = true, .integer_dot = true}).can;
}

// Products wait for the first workgroups only where that was seen to end.
TEST(VulkanTarget, WorkgroupsStartInOrderOnKnownDevices) {
  constexpr uint32_t kNvidia = 0x10DE, kAmd = 0x1002, kIntel = 0x8086, kMesa = 0x10005;
  EXPECT_TRUE(CapabilitiesOf(kNvidia, VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU).starts_in_order);
  EXPECT_TRUE(CapabilitiesOf(kMesa, VK_PHYSICAL_DEVICE_TYPE_CPU).starts_in_order);
  for (const uint32_t vendor : {kAmd, kIntel, kMesa}) {
    for (const VkPhysicalDeviceType type :
         {VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU}) {
      EXPECT_FALSE(CapabilitiesOf(vendor, type).starts_in_order) << vendor;
    }
  }
}

}  // namespace
}  // namespace rullama::vulkan
