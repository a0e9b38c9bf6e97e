#include <gmock/gmock.h>
#include <rullama/sdk/options.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rullama::sdk {
namespace {

using ::testing::HasSubstr;

struct Settings {
  bool fast = false;
  uint64_t lanes = 0;
};

constexpr OptionRow<Settings> kRows[] = {
    {{"lanes", "2 to 1000", "2", "how many there are"},
     [](Settings& settings, const Option& option) {
       settings.lanes = ParseCount(option, "lanes", 2, 1000);
     }},
    {{"fast", "on, off", "off", "whether it is fast"},
     [](Settings& settings, const Option& option) { settings.fast = ParseSwitch(option); }}};

// The error text for these options; empty if they are accepted.
std::string Refusal(const std::vector<Option>& options) {
  try {
    Settings settings;
    ReadOptions<Settings>("mine", kRows, options, settings);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), RL_INVALID_ARGUMENT);
    return error.what();
  }
  return {};
}

TEST(ReadOptions, InOrder) {
  Settings settings;
  const std::vector<Option> options = {{"fast", "on"}, {"lanes", "4"}, {"lanes", "1000"}};
  ReadOptions<Settings>("mine", kRows, options, settings);
  EXPECT_TRUE(settings.fast);
  EXPECT_EQ(settings.lanes, 1000U);
}

TEST(ReadOptions, TheRefusalOfAnUnknownOneListsAll) {
  EXPECT_EQ(Refusal({{"fats", "on"}}),
            "unknown option 'fats'; the mine backend knows: lanes, fast");
}

TEST(ReadOptions, RefusalsSayWhatWasExpected) {
  EXPECT_EQ(Refusal({{"fast", "yes"}}), "option fast is 'yes', expected on or off");
  for (const char* lanes : {"1", "1001", "4k", "", "-1"}) {
    EXPECT_THAT(Refusal({{"lanes", lanes}}), HasSubstr("expected lanes from 2 to 1000")) << lanes;
  }
}

TEST(InfosOf, IsTheTable) {
  const std::vector<OptionInfo> infos = InfosOf<Settings>(kRows);
  ASSERT_EQ(infos.size(), 2U);
  EXPECT_EQ(infos.front().name, "lanes");
  EXPECT_EQ(infos.back().meaning, "whether it is fast");
}

}  // namespace
}  // namespace rullama::sdk
