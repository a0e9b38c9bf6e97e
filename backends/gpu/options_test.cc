#include "backends/gpu/options.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace rullama::gpu {
namespace {

using ::testing::HasSubstr;

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    table_.AddSwitch("fast", fast_);
    table_.AddSwitch("units", units_, false, "matrix units");
    table_.Add("form", [this](const sdk::Option& option) { form_ = option.value; });
  }
  // The error text for these options; empty if they are accepted.
  std::string Refusal(const std::vector<sdk::Option>& options) {
    try {
      table_.Read(options);
    } catch (const sdk::Error& error) {
      EXPECT_EQ(error.code(), RL_INVALID_ARGUMENT);
      return error.what();
    }
    return {};
  }

  CommonSettings common_;
  bool fast_ = false, units_ = false;
  std::string form_;
  Options table_{"mine", common_, 1000000};
};

TEST_F(OptionsTest, AreRead) {
  EXPECT_EQ(Refusal({{"fast", "on"},
                     {"form", "round"},
                     {"units", "off"},
                     {"profile", "on"},
                     {"precise_products", "on"},
                     {"weight_piece", "4096"}}),
            "");
  EXPECT_TRUE(fast_ && common_.profile && common_.precise_products);
  EXPECT_EQ(form_, "round");
  EXPECT_EQ(common_.weight_piece, 4096U);
}

TEST_F(OptionsTest, TheRefusalOfAnUnknownOneListsAll) {
  EXPECT_EQ(Refusal({{"fats", "on"}}),
            "unknown option 'fats'; the mine backend knows: fast, form, precise_products, profile, "
            "units, weight_piece");
}

TEST_F(OptionsTest, RefusalsSayWhatWasExpected) {
  EXPECT_EQ(Refusal({{"fast", "yes"}}), "option fast is 'yes', expected on or off");
  EXPECT_EQ(Refusal({{"units", "on"}}), "option units is 'on', but the device has no matrix units");
  for (const char* bytes : {"4095", "1000001", "4k", "", "-1"}) {
    EXPECT_THAT(Refusal({{"weight_piece", bytes}}),
                HasSubstr("expected bytes from 4096 to 1000000"))
        << bytes;
  }
}

TEST(IsSwitchedOn, OnlyWhereItSaysSo) {
  const std::vector<sdk::Option> options = {{"a", "on"}, {"b", "off"}};
  EXPECT_TRUE(IsSwitchedOn(options, "a"));
  EXPECT_FALSE(IsSwitchedOn(options, "b"));
  EXPECT_FALSE(IsSwitchedOn(options, "c"));
}

}  // namespace
}  // namespace rullama::gpu
