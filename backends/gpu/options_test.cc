#include "backends/gpu/options.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace rullama::gpu {
namespace {

using ::testing::HasSubstr;

struct Facts {
  uint64_t max_allocation;
};
struct DriverOptions {
  bool units = false;
};
using Settings = OptionsOf<Facts, DriverOptions>;

const std::vector<sdk::OptionRow<Settings>> kRows = WithCommonRows<Settings>(
    {{{"units", "on, off", "off", "matrix units"},
      [](Settings& settings, const sdk::Option& option) {
        settings.driver.units = ParseSwitchFor(option, false, "matrix units");
      }}},
    "products are precise");
constexpr Facts kFacts{1000000};

// The error text for an option; empty if it is accepted.
std::string Refusal(const sdk::Option& option) {
  try {
    Settings settings{kFacts, {}};
    sdk::ReadOptions<Settings>("mine", kRows, std::vector{option}, settings);
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), RL_INVALID_ARGUMENT);
    return error.what();
  }
  return {};
}

TEST(GpuOptions, AreRead) {
  Settings settings{kFacts, {}};
  const std::vector<sdk::Option> options = {
      {"units", "off"}, {"profile", "on"}, {"precise_products", "on"}, {"weight_piece", "4096"}};
  sdk::ReadOptions<Settings>("mine", kRows, options, settings);
  EXPECT_TRUE(settings.common.profile && settings.common.precise_products);
  EXPECT_EQ(settings.common.weight_piece, 4096U);
}

TEST(GpuOptions, RefusalsSayWhatTheDeviceHas) {
  EXPECT_EQ(Refusal({"units", "on"}), "option units is 'on', but the device has no matrix units");
  EXPECT_THAT(Refusal({"weight_piece", "1000001"}),
              HasSubstr("expected bytes from 4096 to 1000000"));
}

TEST(IsSwitchedOn, OnlyWhereItSaysSo) {
  const std::vector<sdk::Option> options = {{"a", "on"}, {"b", "off"}};
  EXPECT_TRUE(IsSwitchedOn(options, "a"));
  EXPECT_FALSE(IsSwitchedOn(options, "b"));
  EXPECT_FALSE(IsSwitchedOn(options, "c"));
}

}  // namespace
}  // namespace rullama::gpu
