// Which device a selector means; a software rasteriser only when asked for.
#include "core/plugin/registry.h"
#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

Result<DeviceChoice> Select(const std::string& script, std::string_view selector) {
  const ScopedVariable variable("RULLAMA_FAKE", script);
  const TestHost host;
  RegistryOptions options;
  options.flag_paths = {FakeFile("fake")};
  Registry registry(options, host.get());
  RL_ASSIGN_OR_RETURN(const auto plugin, registry.Find("fake"));
  return registry.SelectDevice(*plugin, selector);
}

const std::string kSoftware = "type=" + std::to_string(RL_DEVICE_SOFTWARE);

TEST(SelectDevice, DefaultIsTheFirst) { EXPECT_EQ(Select("devices=3", "")->index, 0U); }

TEST(SelectDevice, ByIndex) {
  EXPECT_EQ(Select("devices=3", "2")->index, 2U);
  EXPECT_EQ(Select("devices=3", "2")->description.name, "Other");
  ExpectError(Select("devices=3", "3"), "device.unknown", {"no device 3", "2: Other"});
  ExpectError(Select("devices=3", "99999999999999999999"), "device.unknown", {});
}

TEST(SelectDevice, ByPartOfTheName) {
  EXPECT_EQ(Select("devices=3", "two")->index, 1U);
  EXPECT_EQ(Select("devices=3", "OTHER")->index, 2U);
  ExpectError(Select("devices=3", "fake"), "device.ambiguous", {"fits 2", "0: Fake One"});
  ExpectError(Select("devices=3", "nvidia"), "device.unknown", {"'nvidia'", "1: Fake Two"});
}

TEST(SelectDevice, EqualNamesAreAmbiguous) {
  ExpectError(Select("devices=4", "fake one"), "device.ambiguous", {"3: Fake One"});
}

TEST(SelectDevice, NoDevice) {
  ExpectError(Select("devices=0;reason=no driver found", ""), "device.none",
              {"no driver found", "usable backends: none"});
  ExpectError(Select("devices=0;reason=no driver found", "0"), "device.none", {"no driver found"});
}

TEST(SelectDevice, SoftwareHasToBeAskedFor) {
  ExpectError(Select(kSoftware, ""), "device.software", {"Fake One (software)", "--device 0"});
  EXPECT_EQ(Select(kSoftware, "0")->index, 0U);
  EXPECT_EQ(Select(kSoftware, "fake")->description.type, RL_DEVICE_SOFTWARE);
}

}  // namespace
}  // namespace rullama::testing
