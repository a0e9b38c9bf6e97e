// Faults of OpenCL devices. No such device is at hand, so functions of a working driver are
// replaced. Needs a driver; in CI that is PoCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/gpu/device_objects.h"
#include "backends/gpu/fake_driver_test_util.h"
#include "backends/gpu/kernel_cache.h"
#include "backends/opencl/driver.h"
#include "backends/opencl/instance.h"
#include "backends/opencl/programs.h"
#include "backends/opencl/sources.h"

namespace rullama::opencl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Api RealApi() {
  Api api;
  EXPECT_EQ(LoadApi(api), "");
  return api;
}

// The error that `call` throws; fails the test if there is none.
template <typename Call>
sdk::Error ErrorOf(Call call) {
  try {
    call();
  } catch (const sdk::Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return sdk::Error(RL_OK, "");
}

// ---- no device ----------------------------------------------------------------------------------

TEST(OpenClInstance, NoPlatform) {
  Api api = RealApi();
  api.GetPlatformIDs = [](cl_uint, cl_platform_id*, cl_uint* count) -> cl_int {
    *count = 0;
    return CL_PLATFORM_NOT_FOUND_KHR;
  };
  const char* before = std::getenv("OCL_ICD_VENDORS");
  const std::string vendors = before == nullptr ? "" : before;
  const auto reason = [&](const char* place) {
    ::setenv("OCL_ICD_VENDORS", place, 1);
    const Instance instance(api);
    EXPECT_TRUE(instance.devices().empty());
    return instance.reason();
  };
  EXPECT_THAT(reason("/nonexistent"), HasSubstr("no OpenCL driver is installed"));
  // Installed, but the loader could not load it: memory, descriptors, a damaged library.
  const auto folder = std::filesystem::path(::testing::TempDir()) / "opencl_test_vendors";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "mine.icd") << "libmine.so\n";
  for (const std::string& place : {folder.string(), (folder / "mine.icd").string()}) {
    EXPECT_THAT(reason(place.c_str()),
                AllOf(HasSubstr("could be loaded"), HasSubstr("mine.icd"), HasSubstr("ulimit -v")));
  }
  std::filesystem::remove_all(folder);
  if (before == nullptr) {
    ::unsetenv("OCL_ICD_VENDORS");
  } else {
    ::setenv("OCL_ICD_VENDORS", vendors.c_str(), 1);
  }
}

TEST(OpenClInstance, PlatformWithoutDevices) {
  Api api = RealApi();
  api.GetDeviceIDs = [](cl_platform_id, cl_device_type, cl_uint, cl_device_id*,
                        cl_uint*) -> cl_int { return CL_DEVICE_NOT_FOUND; };
  const Instance instance(api);
  EXPECT_TRUE(instance.devices().empty());
  EXPECT_THAT(instance.reason(), HasSubstr("OpenCL finds no device"));
}

// The real answers, but for one.
Api g_real;
template <cl_device_info kWhat>
cl_int AnswerZero(cl_device_id device, cl_device_info what, size_t size, void* value,
                  size_t* needed) {
  const cl_int result = g_real.GetDeviceInfo(device, what, size, value, needed);
  if (what == kWhat && value != nullptr) std::memset(value, 0, size);
  return result;
}

TEST(OpenClInstance, SaysWhatADeviceLacks) {
  g_real = RealApi();
  Api api = g_real;
  api.GetDeviceInfo = AnswerZero<CL_DEVICE_LOCAL_MEM_SIZE>;
  EXPECT_THAT(Instance(api).reason(),
              AllOf(HasSubstr("cannot be used"), HasSubstr("0 bytes of local memory")));
  api.GetDeviceInfo = AnswerZero<CL_DEVICE_COMPILER_AVAILABLE>;
  EXPECT_THAT(Instance(api).reason(), HasSubstr("no compiler of OpenCL C"));
  api.GetDeviceInfo = AnswerZero<CL_DEVICE_VERSION>;
  EXPECT_THAT(Instance(api).reason(), HasSubstr("needed is OpenCL 1.2"));
  EXPECT_TRUE(Instance(api).devices().empty());
}

// ---- a device that fails ------------------------------------------------------------------------

class OpenClDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(instance_.devices().empty()) << instance_.reason(); }

  const PhysicalDevice& device() { return instance_.devices().front(); }
  sdk::Host host() { return host_.host(); }

  Instance instance_{RealApi()};
  gpu::FakeHost host_;
};

TEST_F(OpenClDeviceTest, WritesAndReads) {
  OpenClDriver driver(instance_.api(), device(), host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const gpu::Allocation memory = blocks.Allocate(1024);
  driver.FillZero(memory);
  const std::array<uint32_t, 2> words{7, 8};
  driver.Write(memory, 4, std::as_bytes(std::span(words)));
  std::array<uint32_t, 4> read{1, 1, 1, 1};
  driver.Read(memory, 0, std::as_writable_bytes(std::span(read)));
  EXPECT_THAT(read, ElementsAre(0, 7, 8, 0));
}

TEST_F(OpenClDeviceTest, AddressesBelongToTheirBuffer) {
  OpenClDriver driver(instance_.api(), device(), host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const gpu::Allocation first = blocks.Allocate(100), second = blocks.Allocate(uint64_t{65} << 20);
  const Place place = driver.PlaceOf(second.address() + 12);
  EXPECT_NE(place.buffer, driver.PlaceOf(first.address()).buffer);
  EXPECT_EQ(place.buffer, driver.PlaceOf(second.address()).buffer);
  EXPECT_EQ(place.offset, second.offset() + 12);
}

TEST_F(OpenClDeviceTest, MoreThanThereIs) {
  OpenClDriver driver(instance_.api(), device(), host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const sdk::Error error = ErrorOf([&] { blocks.Allocate(uint64_t{1} << 60); });
  EXPECT_EQ(error.code(), RL_OUT_OF_MEMORY);
  EXPECT_THAT(error.what(), HasSubstr("more on the device, which has"));
}

TEST_F(OpenClDeviceTest, MoreThanOneAllocationMayHave) {
  PhysicalDevice small = device();
  small.facts.max_allocation = uint64_t{1} << 20;
  OpenClDriver driver(instance_.api(), small, host(), {});
  gpu::BlockMemory blocks(driver, 0);
  EXPECT_NO_THROW(blocks.Allocate(1000));
  const sdk::Error error = ErrorOf([&] { blocks.Allocate(uint64_t{2} << 20); });
  EXPECT_EQ(error.code(), RL_OUT_OF_MEMORY);
  EXPECT_THAT(error.what(), HasSubstr("one allocation may have"));
}

TEST(OpenClPieces, WholeTilesWherePossible) {
  gpu::WeightShape shape;
  shape.rows = 1000;
  shape.stride = 64;
  const auto counts = [&shape](uint64_t bytes) {
    std::vector<uint64_t> rows;
    for (const gpu::WeightRows& piece : gpu::PiecesOf(shape, bytes)) {
      EXPECT_EQ(piece.first, std::accumulate(rows.begin(), rows.end(), uint64_t{0}));
      rows.push_back(piece.count);
    }
    return rows;
  };
  EXPECT_THAT(counts(64000), ElementsAre(1000));
  EXPECT_THAT(counts(63999), ElementsAre(768, 232));
  EXPECT_THAT(counts(400 * 64), ElementsAre(256, 256, 256, 232));
  EXPECT_THAT(counts(100 * 64), SizeIs(10));
  EXPECT_THAT(counts(1), SizeIs(1000));
}

// Rows of a matrix that no allocation could have, read back from where its pieces are.
TEST_F(OpenClDeviceTest, WeightsInPieces) {
  PhysicalDevice small = device();
  small.facts.max_allocation = 4096;
  OpenClDriver driver(instance_.api(), small, host(), {});
  std::vector<float> values(size_t{64} * 32);
  std::iota(values.begin(), values.end(), 0.0F);
  rl_weight_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.dtype = static_cast<uint32_t>(DType::kF32);
  desc.rank = 2;
  desc.dims[0] = 64;
  desc.dims[1] = 32;
  desc.data = values.data();
  desc.bytes = values.size() * sizeof(float);
  gpu::BlockMemory blocks(driver, 0);
  const gpu::OwnedWeight weight(driver, blocks, desc);
  ASSERT_THAT(weight.pieces(), SizeIs(3));
  for (const gpu::DeviceWeight::Piece& piece : weight.pieces()) {
    const Place place = driver.PlaceOf(piece.address);
    float first = 0;
    ASSERT_EQ(driver.api().EnqueueReadBuffer(driver.queue(), place.buffer, CL_TRUE, place.offset,
                                             sizeof(first), &first, 0, nullptr, nullptr),
              CL_SUCCESS);
    EXPECT_EQ(first, values[piece.rows.first * 32]);
  }
}

TEST_F(OpenClDeviceTest, DriverWithoutRoom) {
  Api api = instance_.api();
  api.CreateBuffer = [](cl_context, cl_mem_flags, size_t, void*, cl_int* result) -> cl_mem {
    *result = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  };
  OpenClDriver driver(api, device(), host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const sdk::Error error = ErrorOf([&] { blocks.Allocate(1024); });
  EXPECT_EQ(error.code(), RL_OUT_OF_MEMORY);
  EXPECT_THAT(error.what(), HasSubstr("CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"));
}

TEST_F(OpenClDeviceTest, LostOnceIsLostForEver) {
  Api api = instance_.api();
  api.Finish = [](cl_command_queue) -> cl_int { return CL_OUT_OF_RESOURCES; };
  OpenClDriver driver(api, device(), host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const gpu::Allocation memory = blocks.Allocate(16);
  std::array<std::byte, 16> bytes{};
  EXPECT_EQ(ErrorOf([&] { driver.Read(memory, 0, bytes); }).code(), RL_DEVICE_LOST);
  EXPECT_EQ(ErrorOf([&] { driver.Write(memory, 0, bytes); }).code(), RL_DEVICE_LOST);
  const sdk::Error error = ErrorOf([&] { driver.Wait(); });
  EXPECT_EQ(error.code(), RL_DEVICE_LOST);
  EXPECT_THAT(error.what(), HasSubstr("after an earlier failure"));
}

// ---- programs -----------------------------------------------------------------------------------

const gpu::PipelineKey kArgMax{gpu::Shader::kArgMax, {1}};

TEST(OpenClSources, IncludesAreInTheirPlace) {
  const std::string source = SourceOf("argmax.cl");
  EXPECT_THAT(source, AllOf(HasSubstr("uint KeyOf(float x)"), HasSubstr("KERNEL(argmax)")));
  EXPECT_EQ(source.find("#include"), std::string::npos);
  EXPECT_EQ(source.find("typedef ulong Pointer;"), source.rfind("typedef ulong Pointer;"));
}

TEST(OpenClSources, CommonKernelsGetWhatEveryKernelIncludes) {
  const std::string source = SourceOf("pointwise.cl");
  EXPECT_THAT(source, AllOf(HasSubstr("typedef ulong Pointer;"), HasSubstr("#define ARGUMENTS"),
                            HasSubstr("float Exp(float x)"), HasSubstr("KERNEL(pointwise)")));
  EXPECT_THROW(SourceOf("none.cl"), std::logic_error);
}

TEST_F(OpenClDeviceTest, WhatDoesNotCompileShowsTheLog) {
  // PTX, which a CPU's driver does not take.
  OpenClDriver driver(instance_.api(), device(), host(), {.form = Form::kNvidia});
  gpu::KernelCache kernels(driver);
  const sdk::Error error = ErrorOf([&] { kernels.Prepare(std::span(&kArgMax, 1)); });
  EXPECT_EQ(error.code(), RL_INTERNAL);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("does not compile argmax.cl"), HasSubstr("-DNVIDIA"),
                                  HasSubstr("asm"), HasSubstr("CL_BUILD_PROGRAM_FAILURE")));
}

// Only devices with tensor cores convert rows for them, but any driver can compile that.
TEST_F(OpenClDeviceTest, ConversionsForTensorCoresCompile) {
  OpenClDriver driver(instance_.api(), device(), host(), {});
  gpu::KernelCache kernels(driver);
  for (const uint32_t parts : {1U, 2U}) {
    const gpu::kernels::ToHalf kernel{
        .threads = 64, .norms = false, .parts = parts, .narrow = false};
    const gpu::PipelineKey key{gpu::Shader::kToHalf, ConstantsOf(kernel)};
    EXPECT_EQ(kernels.Prepare(std::span(&key, 1)), 1U) << parts << " parts";
  }
}

int g_sources = 0;
TEST_F(OpenClDeviceTest, BinariesComeFromTheCache) {
  g_real = instance_.api();
  g_sources = 0;
  Api api = g_real;
  api.CreateProgramWithSource = [](cl_context context, cl_uint count, const char** text,
                                   const size_t* length, cl_int* result) {
    ++g_sources;
    return g_real.CreateProgramWithSource(context, count, text, length, result);
  };
  for (int run = 0; run < 2; ++run) {
    OpenClDriver driver(api, device(), host(), {.form = Form::kCpu, .cache = true});
    gpu::KernelCache kernels(driver);
    EXPECT_EQ(kernels.Prepare(std::span(&kArgMax, 1)), 1U);
    EXPECT_EQ(kernels.Prepare(std::span(&kArgMax, 1)), 0U);
    EXPECT_NE(driver.programs().NewKernel(kernels.Get(kArgMax), kArgMax), nullptr);
    EXPECT_EQ(g_sources, 1) << "run " << run;
  }
  ASSERT_EQ(host_.blobs.size(), 1U);
  EXPECT_THAT(host_.blobs.begin()->first, HasSubstr(device().facts.driver));
  // A damaged file costs time only.
  auto& blob = host_.blobs.begin()->second;
  blob.resize(blob.size() / 2);
  OpenClDriver driver(api, device(), host(), {.form = Form::kCpu, .cache = true});
  gpu::KernelCache kernels(driver);
  EXPECT_EQ(kernels.Prepare(std::span(&kArgMax, 1)), 1U);
  EXPECT_EQ(g_sources, 2);
}

}  // namespace
}  // namespace rullama::opencl
