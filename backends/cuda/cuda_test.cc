// The driver of CUDA devices over a driver library that is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/commands.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/fake_cuda_test_util.h"
#include "backends/cuda/forms.h"
#include "backends/cuda/images.h"
#include "backends/cuda/instance.h"
#include "backends/gpu/block_memory.h"
#include "backends/gpu/fake_driver_test_util.h"
#include "backends/gpu/kernel_cache.h"

namespace rullama::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

// A compute capability that this build has code for.
int SomeCapability() {
  for (const uint32_t capability : {80U, 86U, 89U, 90U, 100U, 120U}) {
    if (HasCodeFor(capability)) return static_cast<int>(capability);
  }
  ADD_FAILURE() << "code for " << CodeText();
  return 0;
}

// ---- no device ----------------------------------------------------------------------------------

TEST(CudaInstance, WithoutADriver) {
  Api api;
  EXPECT_THAT(LoadApi(api, "libno_such_driver.so.1"),
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libno_such_driver.so.1"),
                    HasSubstr("install the driver")));
  // A library without the functions.
  EXPECT_THAT(LoadApi(api, "libm.so.6"),
              AllOf(HasSubstr("the NVIDIA driver is too old"), HasSubstr(kOldestRelease)));
}

TEST(CudaInstance, DriverWithoutADevice) {
  FakeCuda cuda;
  cuda.init = CUDA_ERROR_NO_DEVICE;
  EXPECT_THAT(Instance(cuda.api).reason(), HasSubstr("finds no GPU"));
  cuda.init = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  EXPECT_THAT(Instance(cuda.api).reason(),
              AllOf(HasSubstr("cuInit: CUDA_ERROR_FAKE (803)"), HasSubstr("nvidia-smi")));
  cuda.init = CUDA_SUCCESS;
  cuda.devices = 0;
  EXPECT_THAT(Instance(cuda.api).reason(), HasSubstr("finds no GPU"));
}

TEST(CudaInstance, DevicesWithoutCodeHaveAReason) {
  FakeCuda cuda;
  cuda.capability = 35;
  const Instance instance(cuda.api);
  EXPECT_THAT(instance.devices(), IsEmpty());
  EXPECT_THAT(instance.reason(), AllOf(HasSubstr("compute capability 3.5"), HasSubstr(CodeText())));
}

TEST(CudaInstance, OldDriversAreRefused) {
  FakeCuda cuda;
  cuda.capability = SomeCapability();
  cuda.version = 11080;
  const Instance instance(cuda.api);
  EXPECT_THAT(instance.devices(), IsEmpty());
  EXPECT_THAT(instance.reason(), AllOf(HasSubstr("CUDA 11.8"), HasSubstr("the plugin needs"),
                                       HasSubstr(std::string("release ") + kOldestRelease)));
}

TEST(CudaInstance, AllDevicesAreListed) {
  FakeCuda cuda;
  cuda.capability = SomeCapability();
  cuda.devices = 2;
  const Instance instance(cuda.api);
  ASSERT_THAT(instance.devices(), SizeIs(2));
  EXPECT_EQ(instance.devices()[1].id, 1);
  EXPECT_EQ(instance.devices()[1].facts.name, "Fake");
  EXPECT_THAT(instance.devices()[1].facts.driver, HasSubstr("CUDA 1"));
}

// Code compiled for the device is better than PTX, which the driver compiles.
TEST(CudaInstance, DevicesHaveTheCapabilityOfTheirCode) {
  FakeCuda cuda;
  cuda.capability = SomeCapability();
  const Instance instance(cuda.api);
  ASSERT_THAT(instance.devices(), SizeIs(1));
  const Facts& facts = instance.devices()[0].facts;
  EXPECT_EQ(facts.code_capability, CapabilityOfCodeFor(facts.capability));
  using enum Architecture::Kind;
  const Architecture all[] = {{80, kPtx}, {90, kSpecific}, {80, kCode}};
  EXPECT_EQ(BestFor(all, 90), 1U);
  EXPECT_EQ(BestFor(all, 86), 2U);
  EXPECT_EQ(BestFor(all, 100), 0U);
  EXPECT_EQ(BestFor(all, 75), std::nullopt);
}

// ---- a device -----------------------------------------------------------------------------------

class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() {
    physical_.facts = {.name = "Fake",
                       .driver = "CUDA 13.0",
                       .capability = static_cast<uint32_t>(SomeCapability()),
                       .memory = uint64_t{1} << 30,
                       .max_allocation = uint64_t{1} << 30,
                       .multiprocessors = 2,
                       .shared_memory = 49152};
  }
  ~CudaDeviceTest() override {
    EXPECT_EQ(cuda_.contexts, 0) << "contexts left current";
    EXPECT_EQ(cuda_.modules, 0) << "modules left loaded";
    EXPECT_EQ(cuda_.graphs, 0) << "graphs left";
    EXPECT_FALSE(cuda_.capturing) << "a stream left capturing";
  }

  FakeCuda cuda_;
  gpu::FakeHost host_;
  PhysicalDevice physical_;
};

TEST_F(CudaDeviceTest, WritesAndReads) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const gpu::Allocation memory = blocks.Allocate(size_t{1} << 20);
  driver.FillZero(memory);
  const std::array<uint32_t, 2> words{7, 8};
  driver.Write(memory, 4, std::as_bytes(std::span(words)));
  std::array<uint32_t, 4> read{1, 1, 1, 1};
  driver.Read(memory, 0, std::as_writable_bytes(std::span(read)));
  EXPECT_THAT(read, ElementsAre(0, 7, 8, 0));
  // More than goes by way of memory that copies may use later.
  std::vector<uint32_t> many(100000);
  std::iota(many.begin(), many.end(), 0);
  driver.Write(memory, 0, std::as_bytes(std::span(many)));
  std::vector<uint32_t> again(many.size());
  driver.Read(memory, 0, std::as_writable_bytes(std::span(again)));
  EXPECT_EQ(again, many);
}

// Small copies that nothing waits for have a limited place.
TEST_F(CudaDeviceTest, ManySmallWritesKeepTheirBytes) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::BlockMemory blocks(driver, 0);
  constexpr size_t kCount = 100, kWords = 8192;
  const gpu::Allocation memory = blocks.Allocate(kCount * kWords * 4);
  for (size_t i = 0; i < kCount; ++i) {
    const std::vector<uint32_t> data(kWords, static_cast<uint32_t>(i));
    driver.Write(memory, i * kWords * 4, std::as_bytes(std::span(data)));
  }
  std::vector<uint32_t> all(kCount * kWords);
  driver.Read(memory, 0, std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(all[i * kWords + 5], i);
}

TEST_F(CudaDeviceTest, DriverWithoutRoom) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::BlockMemory blocks(driver, 0);
  cuda_.allocates = CUDA_ERROR_OUT_OF_MEMORY;
  const sdk::Error error = ErrorOf([&] { blocks.Allocate(1024); });
  EXPECT_EQ(error.code(), RL_OUT_OF_MEMORY);
  EXPECT_THAT(error.what(), HasSubstr("cuMemAlloc"));
}

TEST_F(CudaDeviceTest, LostOnceIsLostForEver) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const gpu::Allocation memory = blocks.Allocate(16);
  cuda_.finishes = CUDA_ERROR_ILLEGAL_ADDRESS;
  std::array<std::byte, 16> bytes{};
  EXPECT_EQ(ErrorOf([&] { driver.Read(memory, 0, bytes); }).code(), RL_DEVICE_LOST);
  cuda_.finishes = CUDA_SUCCESS;
  EXPECT_EQ(ErrorOf([&] { driver.Write(memory, 0, bytes); }).code(), RL_DEVICE_LOST);
  const sdk::Error error = ErrorOf([&] { driver.Wait(); });
  EXPECT_EQ(error.code(), RL_DEVICE_LOST);
  EXPECT_THAT(error.what(), HasSubstr("after an earlier failure"));
}

TEST_F(CudaDeviceTest, AnyFailedWaitLosesTheDevice) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::BlockMemory blocks(driver, 0);
  const gpu::Allocation memory = blocks.Allocate(16);
  cuda_.finishes = CUDA_ERROR_UNKNOWN;
  std::array<std::byte, 16> bytes{};
  const sdk::Error error = ErrorOf([&] { driver.Read(memory, 0, bytes); });
  EXPECT_EQ(error.code(), RL_DEVICE_LOST);
  EXPECT_THAT(error.what(), HasSubstr("cuStreamSynchronize: CUDA_ERROR_FAKE (999)"));
  cuda_.finishes = CUDA_SUCCESS;
  EXPECT_EQ(ErrorOf([&] { driver.Wait(); }).code(), RL_DEVICE_LOST);
}

TEST_F(CudaDeviceTest, LosesItsContextAndIsClosed) {
  const gpu::PipelineKey key{gpu::Shader::kRows, {64, 5, 1, 0}};
  {
    CudaDriver driver(cuda_.api, physical_, host_.host(), {});
    gpu::BlockMemory blocks(driver, 0);
    const gpu::Allocation memory = blocks.Allocate(16);
    gpu::KernelCache kernels(driver);
    kernels.Prepare(std::span(&key, 1));
    cuda_.pushes = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    const sdk::Error error = ErrorOf([&] { driver.FillZero(memory); });
    EXPECT_EQ(error.code(), RL_DEVICE_LOST);
    EXPECT_THAT(error.what(), HasSubstr("cuCtxPushCurrent"));
  }
  EXPECT_EQ(cuda_.contexts, 0) << "a context was left that was not entered";
}

// ---- kernels and steps --------------------------------------------------------------------------

const gpu::PipelineKey kArgMax{gpu::Shader::kArgMax, {256}};

TEST_F(CudaDeviceTest, KernelsGetTheirConstants) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::KernelCache kernels(driver);
  const gpu::PipelineKey key{gpu::Shader::kRows, {64, 5, 1, 0}};
  EXPECT_EQ(kernels.Prepare(std::span(&key, 1)), 1U);
  EXPECT_EQ(kernels.Prepare(std::span(&key, 1)), 0U);
  EXPECT_THAT(std::vector(cuda_.constants.begin(), cuda_.constants.begin() + 4),
              ElementsAre(64, 5, 1, 0));
  EXPECT_FALSE(cuda_.copying) << "kernels may run before their constants are in place";
}

TEST_F(CudaDeviceTest, PlacesOfConstantsHaveTheirSize) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::KernelCache kernels(driver);
  const gpu::PipelineKey key{gpu::Shader::kRows, {64, 5, 1, 0}};
  cuda_.constant_bytes = 32;
  const sdk::Error error = ErrorOf([&] { kernels.Prepare(std::span(&key, 1)); });
  EXPECT_EQ(error.code(), RL_INTERNAL);
  EXPECT_THAT(error.what(), HasSubstr("32 bytes for constants, expected 64"));
}

TEST_F(CudaDeviceTest, KernelsWithoutCodeAreAnError) {
  CudaDriver driver(cuda_.api, physical_, host_.host(), {});
  gpu::KernelCache kernels(driver);
  const gpu::PipelineKey key{gpu::Shader::kArgMax, {2048}};
  const sdk::Error error = ErrorOf([&] { kernels.Prepare(std::span(&key, 1)); });
  EXPECT_EQ(error.code(), RL_INTERNAL);
  EXPECT_THAT(error.what(), HasSubstr("no code for the kernel 'argmax 2048'"));
}

class CudaStepTest : public CudaDeviceTest {
 protected:
  CudaStepTest() : dispatches_(2) {
    for (gpu::Dispatch& dispatch : dispatches_) {
      dispatch.pipeline = kArgMax;
      dispatch.groups = {3, 2, 1};
    }
  }
  void Open(const DriverOptions& options, bool timed) {
    driver_.emplace(cuda_.api, physical_, host_.host(), options);
    blocks_.emplace(*driver_, 0);
    memory_.emplace(blocks_->Allocate(16));
    kernels_.emplace(*driver_);
    kernels_->Prepare(std::span(&kArgMax, 1));
    commands_ = driver_->Record({dispatches_, levels_, *kernels_, timed, true});
    driver_->Write(*memory_, 0, std::as_bytes(std::span(&kWord, 1)));
  }
  void Execute() {
    uint32_t read = 0;
    driver_->Submit(*commands_, {&*memory_, 0, std::as_writable_bytes(std::span(&read, 1))});
    driver_->Wait();
    EXPECT_EQ(read, kWord);
  }
  // Executes a step of two dispatches several times.
  void Run(const DriverOptions& options, bool timed, int times) {
    Open(options, timed);
    for (int i = 0; i < times; ++i) Execute();
    if (timed) driver_->TimesOf(*commands_, times_);
  }

  static constexpr uint32_t kWord = 42;
  std::vector<gpu::Dispatch> dispatches_;
  std::vector<uint32_t> levels_;
  std::optional<CudaDriver> driver_;
  std::optional<gpu::BlockMemory> blocks_;
  std::optional<gpu::Allocation> memory_;
  std::optional<gpu::KernelCache> kernels_;
  std::unique_ptr<gpu::Commands> commands_;
  std::vector<gpu::DispatchTime> times_;
};

TEST_F(CudaStepTest, RepeatedStepsAreGraphs) {
  Run({}, false, 4);
  ASSERT_THAT(cuda_.launched, SizeIs(2));
  EXPECT_THAT(cuda_.launched[0].groups, ElementsAre(3, 2, 1));
  EXPECT_EQ(cuda_.launched[0].threads, 256U);
  EXPECT_EQ(cuda_.captured, 2U);
  EXPECT_EQ(cuda_.replays, 3);
}

TEST_F(CudaStepTest, WithoutGraphsKernelsAreLaunched) {
  Run({.graphs = false}, false, 4);
  EXPECT_THAT(cuda_.launched, SizeIs(8));
  EXPECT_EQ(cuda_.replays, 0);
}

// The first kernel of a level waits for the level before; the last one ends when all of it has.
TEST_F(CudaStepTest, KernelsOfALevelOverlap) {
  dispatches_.resize(4, dispatches_.front());
  dispatches_[2].groups = {7, 1, 1};
  levels_ = {0, 1, 1, 1};
  Run({.graphs = false}, false, 1);
  ASSERT_THAT(cuda_.launched, SizeIs(4));
  EXPECT_EQ(cuda_.launched[0].overlap, 0U);
  EXPECT_EQ(cuda_.launched[1].groups[0], 7U) << "the largest one waits for another";
  EXPECT_EQ(cuda_.launched[1].overlap, kNextOverlaps);
  EXPECT_EQ(cuda_.launched[2].overlap, kOverlapsLast | kNextOverlaps);
  EXPECT_EQ(cuda_.launched[3].overlap, kOverlapsLast);
}

// The first kernel of a step waits for all before it; the others wait in their code.
TEST_F(CudaStepTest, KernelsThatWaitAreLaunchedEarly) {
  physical_.facts.code_capability = 90;
  Run({.graphs = false}, false, 1);
  ASSERT_THAT(cuda_.launched, SizeIs(2));
  EXPECT_EQ(cuda_.launched[0].attributes, 0U);
  EXPECT_EQ(cuda_.launched[1].attributes, 1U);
}

// PTX for an older device contains no wait, also on a device whose own code would.
TEST_F(CudaStepTest, KernelsWithoutAWaitAreLaunchedInOrder) {
  physical_.facts.code_capability = 80;
  Run({.graphs = false}, false, 1);
  ASSERT_THAT(cuda_.launched, SizeIs(2));
  EXPECT_EQ(cuda_.launched[0].attributes, 0U);
  EXPECT_EQ(cuda_.launched[1].attributes, 0U);
}

// Times are those of dispatches in their order.
TEST_F(CudaStepTest, TimedKernelsKeepTheirOrder) {
  dispatches_[1].groups = {7, 1, 1};
  levels_ = {0, 0};
  Run({}, true, 1);
  ASSERT_THAT(cuda_.launched, SizeIs(2));
  EXPECT_EQ(cuda_.launched[0].groups[0], 3U);
}

TEST_F(CudaStepTest, FailedCaptureIsEnded) {
  Open({}, false);
  Execute();
  cuda_.launches = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(ErrorOf([&] { Execute(); }).code(), RL_INTERNAL);
  EXPECT_FALSE(cuda_.capturing);
  EXPECT_EQ(cuda_.graphs, 0);
  cuda_.launches = CUDA_SUCCESS;
  Execute();
  EXPECT_EQ(cuda_.replays, 1);
}

TEST_F(CudaStepTest, WithoutAnExecutableGraphKernelsAreLaunched) {
  cuda_.instantiates = CUDA_ERROR_NOT_SUPPORTED;
  Run({}, false, 3);
  EXPECT_THAT(cuda_.launched, SizeIs(6));
  EXPECT_EQ(cuda_.captured, 2U) << "kernels are captured once only";
  EXPECT_EQ(cuda_.replays, 0);
}

TEST_F(CudaStepTest, TimesOfAllExecutionsFollowEachOther) {
  Run({}, true, 2);
  ASSERT_THAT(times_, SizeIs(4));
  for (size_t i = 0; i < times_.size(); ++i) {
    EXPECT_EQ(times_[i].begin, i * 500000);
    EXPECT_EQ(times_[i].end, (i + 1) * 500000);
  }
}

TEST_F(CudaStepTest, FailedExecutionLeavesNoEvents) {
  Open({}, true);
  cuda_.launches = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(ErrorOf([&] { Execute(); }).code(), RL_INTERNAL);
  EXPECT_EQ(cuda_.events, 0);
  cuda_.launches = CUDA_SUCCESS;
  Execute();
  EXPECT_EQ(cuda_.events, 3);
  driver_->TimesOf(*commands_, times_);
  EXPECT_THAT(times_, SizeIs(2));
}

}  // namespace
}  // namespace rullama::cuda
