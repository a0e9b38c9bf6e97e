#include "backends/cuda/images.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backends/cuda/forms.h"
#include "backends/gpu/kernel_source.h"

namespace rullama::cuda {
namespace {

TEST(CudaImages, RunOnTheDevicesThatCanTakeThem) {
  using enum Architecture::Kind;
  EXPECT_TRUE((Architecture{80, kCode}).RunsOn(86));
  EXPECT_FALSE((Architecture{86, kCode}).RunsOn(80));
  EXPECT_FALSE((Architecture{80, kCode}).RunsOn(90));
  EXPECT_TRUE((Architecture{90, kSpecific}).RunsOn(90));
  EXPECT_FALSE((Architecture{100, kSpecific}).RunsOn(103));
  EXPECT_TRUE((Architecture{80, kPtx}).RunsOn(120));
  EXPECT_FALSE((Architecture{80, kPtx}).RunsOn(75));
  EXPECT_EQ(CapabilityText(120), "12.0");
}

TEST(CudaImages, UseWarpgroupsOnNoOtherDevices) {
  for (const uint32_t capability : {80U, 86U, 89U, 100U, 120U}) {
    if (!HasCodeFor(capability)) continue;
    EXPECT_FALSE(HasWarpgroups(capability)) << capability;
  }
}

TEST(CudaImages, EachFormHasOneWithItsKernel) {
  size_t devices = 0;
  for (const uint32_t capability : {80U, 86U, 89U, 90U, 100U, 120U}) {
    if (!HasCodeFor(capability)) continue;
    ++devices;
    for (size_t i = 0; i < AllForms().size(); ++i) {
      const std::span<const std::byte> image = ImageOf(i, capability);
      const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
      const std::string_view name = gpu::NameOf(AllForms()[i].shader);
      EXPECT_NE(text.find(name), std::string_view::npos) << name;
      EXPECT_EQ(text.data()[text.size()], '\0');
    }
  }
  EXPECT_GT(devices, 0U) << CodeText();
}

}  // namespace
}  // namespace rullama::cuda
