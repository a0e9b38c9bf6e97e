#include "engine/loading/auto_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr AutoChoices kBoth{.max_t = true, .host_weights = true};
constexpr int64_t kLongContext = 8192;
constexpr uint64_t kModel = 1000;
constexpr uint64_t kTable = 500;

const DeviceSettings kDefaults{.host_weights = {"table"}};

// A model of 1,000 bytes with a table of 500 and one byte of work for each row.
Result<std::vector<uint64_t>> Need(const DeviceSettings& settings) {
  const uint64_t table = settings.host_weights.empty() ? kTable : 0;
  return std::vector{kModel + table + static_cast<uint64_t>(settings.max_t)};
}

DeviceDescription Gpu(uint64_t total, uint64_t free) {
  DeviceDescription device;
  device.type = RL_DEVICE_GPU;
  device.memory_total = total;
  device.memory_free = free;
  return device;
}

DeviceSettings Choose(const DeviceDescription& device, int64_t max_t = kLongContext,
                      AutoChoices choices = kBoth, DeviceSettings given = kDefaults) {
  auto settings = ChooseForDevices(std::move(given), choices, {&device, 1}, max_t, Need);
  EXPECT_TRUE(settings.has_value());
  return settings.value_or(DeviceSettings{.max_t = -1});
}

TEST(AutoSettings, ARoomyGpuTakesLongStepsAndTheTable) {
  EXPECT_EQ(Choose(Gpu(100000, 100000)), (DeviceSettings{.max_t = 2048, .host_weights = {}}));
}

// 1,000 + 500 + 2,048 bytes with a fifth of 4,435 (887) to spare are exactly 4,435.
TEST(AutoSettings, AFifthOfTheMemoryStaysFree) {
  EXPECT_THAT(Choose(Gpu(4435, 4435)).host_weights, IsEmpty());
  EXPECT_EQ(Choose(Gpu(4435, 4434)), (DeviceSettings{.max_t = 2048, .host_weights = {"table"}}));
}

TEST(AutoSettings, ASmallGpuTakesTheLongestStepThatFits) {
  // Budgets of 2,048 (1,024 rows fit, the table does not), 2,023 (512 rows and the table), 1,600.
  EXPECT_EQ(Choose(Gpu(2560, 2560)), (DeviceSettings{.max_t = 1024, .host_weights = {"table"}}));
  EXPECT_EQ(Choose(Gpu(2528, 2528)), (DeviceSettings{.max_t = 512, .host_weights = {}}));
  EXPECT_EQ(Choose(Gpu(2000, 2000)), kDefaults);
}

TEST(AutoSettings, MemoryThatOthersUseDoesNotCount) {
  EXPECT_EQ(Choose(Gpu(100000, 20000)), kDefaults);
  EXPECT_EQ(Choose(Gpu(100000, 24000)), (DeviceSettings{.max_t = 2048, .host_weights = {}}));
}

TEST(AutoSettings, UnknownFreeMemoryIsAllOfIt) {
  EXPECT_EQ(Choose(Gpu(100000, 0)), (DeviceSettings{.max_t = 2048, .host_weights = {}}));
  EXPECT_EQ(Choose(Gpu(0, 0)), kDefaults);
}

TEST(AutoSettings, NoStepIsLongerThanTheContext) {
  EXPECT_EQ(Choose(Gpu(100000, 100000), 1500).max_t, 1500);
  EXPECT_EQ(Choose(Gpu(100000, 100000), 100).max_t, 100);
  EXPECT_EQ(Choose(DeviceDescription{}, 100).max_t, 100);
}

TEST(AutoSettings, AnythingElseKeepsShortStepsAndTheTableInTheFile) {
  for (const rl_device_type type : {RL_DEVICE_CPU, RL_DEVICE_SOFTWARE, RL_DEVICE_OTHER}) {
    DeviceDescription device = Gpu(100000, 100000);
    device.type = type;
    const auto settings =
        ChooseForDevices(kDefaults, kBoth, {&device, 1}, kLongContext,
                         [](const DeviceSettings&) -> Result<std::vector<uint64_t>> {
                           return MakeError(ErrorKind::kRuntime, "test", "must not be asked");
                         });
    EXPECT_EQ(settings, kDefaults) << type;
  }
}

TEST(AutoSettings, GivenValuesStay) {
  const DeviceSettings given{.max_t = 7, .host_weights = {"output"}};
  EXPECT_EQ(Choose(Gpu(100000, 100000), kLongContext, {}, given), given);
  EXPECT_EQ(Choose(Gpu(100000, 100000), kLongContext, {.host_weights = true}, given),
            (DeviceSettings{.max_t = 7, .host_weights = {}}));
  EXPECT_THAT(Choose(Gpu(100000, 100000), kLongContext, {.max_t = true}, given).host_weights,
              ElementsAre("output"));
}

TEST(AutoSettings, ErrorsOfTheQueryAreReturned) {
  const DeviceDescription device = Gpu(1, 1);
  const auto settings =
      ChooseForDevices(kDefaults, kBoth, {&device, 1}, kLongContext,
                       [](const DeviceSettings&) -> Result<std::vector<uint64_t>> {
                         return MakeError(ErrorKind::kBackend, "placement.refused", "no");
                       });
  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().id, "placement.refused");
}

// 3,048 bytes are within four fifths of the first and not of the second.
TEST(AutoSettings, EveryGpuHasToHaveRoom) {
  const DeviceDescription devices[] = {Gpu(100000, 100000), Gpu(2000, 2000)};
  const auto need = [](const DeviceSettings& asked) -> Result<std::vector<uint64_t>> {
    return std::vector<uint64_t>(2, Need(asked)->front());
  };
  EXPECT_EQ(*ChooseForDevices(kDefaults, kBoth, devices, kLongContext, need), kDefaults);
}

}  // namespace
}  // namespace rullama
