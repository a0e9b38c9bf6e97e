// Libraries, adapters and devices that are refused, and errors of a device. Needs wgpu-native and a
// driver of Vulkan; in CI that is lavapipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "backends/gpu/block_memory.h"
#include "backends/gpu/fake_driver_test_util.h"
#include "backends/webgpu/driver.h"
#include "backends/webgpu/instance.h"

namespace rullama::webgpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Api RealApi() {
  Api api;
  EXPECT_EQ(LoadApi(api), "");
  return api;
}

TEST(WebGpuInstance, WithoutALibrary) {
  Api api;
  EXPECT_THAT(LoadApi(api, "libno_such_library.so"),
              AllOf(HasSubstr("libno_such_library.so, was not found"),
                    HasSubstr("install version 29"), HasSubstr("RULLAMA_WEBGPU_LIBRARY")));
  // A library without the functions.
  EXPECT_THAT(LoadApi(api, "libm.so.6"), AllOf(HasSubstr("has no wgpu"), HasSubstr("version 29")));
}

TEST(WebGpuInstance, WithoutAnAdapter) {
  Api api = RealApi();
  api.InstanceEnumerateAdapters = [](WGPUInstance, const WGPUInstanceEnumerateAdapterOptions*,
                                     WGPUAdapter*) -> size_t { return 0; };
  const Instance instance(api);
  EXPECT_THAT(instance.devices(), IsEmpty());
  EXPECT_THAT(instance.reason(), HasSubstr("finds no adapter"));
}

TEST(WebGpuInstance, SmallAdaptersAreRefused) {
  Api api = RealApi();
  api.AdapterGetLimits = [](WGPUAdapter, WGPULimits* limits) {
    limits->maxComputeWorkgroupStorageSize = 16384;
    limits->maxComputeInvocationsPerWorkgroup = limits->maxComputeWorkgroupSizeX = 256;
    return WGPUStatus_Success;
  };
  const Instance instance(api);
  EXPECT_THAT(instance.devices(), IsEmpty());
  EXPECT_THAT(instance.reason(), AllOf(HasSubstr("16384"), HasSubstr("needed are 32768")));
}

struct Opened {
  gpu::FakeHost host;
  Instance instance;
  WebGpuDriver driver{instance.api(), instance.devices().at(0), host.host()};
  gpu::BlockMemory blocks{driver, 0};
};

// WebGPU copies whole words.
TEST(WebGpuDriver, BytesAreWrittenAndReadAtAnyOffset) {
  Opened opened;
  const gpu::Allocation memory = opened.blocks.Allocate(64);
  opened.driver.FillZero(memory);
  std::vector<std::byte> expected(64);
  for (const auto& [offset, size] : {std::pair{3, 1}, {5, 6}, {12, 8}, {21, 11}, {63, 1}}) {
    std::vector<std::byte> data(static_cast<size_t>(size), static_cast<std::byte>(offset));
    std::ranges::copy(data, expected.begin() + offset);
    opened.driver.Write(memory, static_cast<uint64_t>(offset), data);
  }
  std::vector<std::byte> found(64);
  opened.driver.Read(memory, 0, found);
  EXPECT_EQ(found, expected);
  std::array<std::byte, 5> part{};
  opened.driver.Read(memory, 19, part);
  EXPECT_TRUE(std::ranges::equal(part, std::span(expected).subspan(19, 5)));
}

TEST(WebGpuDriver, MemoryThatThereIsNotIsAnError) {
  Opened opened;
  try {
    opened.driver.NewBlock(uint64_t{1} << 50, gpu::Residence::kDevice);
    FAIL() << "no error";
  } catch (const sdk::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("wgpuDeviceCreateBuffer"));
  }
  // Nothing is left of it.
  EXPECT_NO_THROW(opened.driver.Wait());
}

TEST(Reports, ALostDeviceStaysLost) {
  Reports reports;
  reports.Check("a");
  reports.Note(RL_INTERNAL, "first");
  reports.Note(RL_INTERNAL, "second");
  EXPECT_THROW(reports.Check("b"), sdk::Error);
  EXPECT_NO_THROW(reports.Check("c"));
  reports.Note(RL_DEVICE_LOST, "gone");
  for (int i = 0; i < 2; ++i) {
    try {
      reports.Check("d");
      FAIL() << "no error";
    } catch (const sdk::Error& error) {
      EXPECT_EQ(error.code(), RL_DEVICE_LOST);
      EXPECT_THAT(error.what(), HasSubstr("gone"));
    }
  }
}

}  // namespace
}  // namespace rullama::webgpu
