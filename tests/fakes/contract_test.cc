// The handshake: tables that cannot be used are refused with both versions or the member named.
#include <cstddef>

#include "core/plugin/loader.h"
#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

using ::testing::HasSubstr;

// "MAJOR.MINOR" of a plugin built with this header.
std::string WithMinor(int major) {
  return std::to_string(major) + "." + std::to_string(RL_ABI_MINOR);
}

void ExpectRefused(const std::string& script, std::string_view id,
                   const std::vector<std::string>& parts) {
  SCOPED_TRACE(script);
  const Scripted fake(script);
  ExpectError(fake.Load(), id, parts);
}

TEST(Handshake, OtherMajorNamesBothVersions) {
  ExpectRefused("major=2", "plugin.abi", {WithMinor(2), WithMinor(1), "rebuild"});
  ExpectRefused("major=65535;minor=3", "plugin.abi", {"65535.3"});
}

TEST(Handshake, UnsetVersionIsRefused) {
  ExpectRefused("major=0", "plugin.abi", {WithMinor(0), "not set"});
}

TEST(Handshake, NewerMinorIsAccepted) {
  const size_t larger = 2 * sizeof(rl_plugin_v1);
  const Scripted fake("minor=9;struct_size=" + std::to_string(larger));
  const auto plugin = fake.Load();
  ASSERT_TRUE(plugin) << plugin.error().ToString();
  EXPECT_EQ((*plugin)->abi_version(), std::pair(1, 9));
  EXPECT_EQ((*plugin)->ListDevices()->devices.size(), 1U);
}

TEST(Handshake, ImplausibleSizesAreRefused) {
  constexpr size_t kSizeV10 =
      offsetof(rl_plugin_v1, graph_describe);  // the last of 1.0 is before it
  const std::string expected = std::to_string(kSizeV10);
  ExpectRefused("struct_size=0", "plugin.abi", {"claims 0 bytes", expected});
  ExpectRefused("struct_size=8", "plugin.abi", {"claims 8 bytes", expected});
  ExpectRefused("struct_size=" + std::to_string(kSizeV10 - 1), "plugin.abi",
                {"at least " + expected});
  ExpectRefused("struct_size=4294967295", "plugin.abi", {"claims 4294967295 bytes"});
}

TEST(Handshake, EachNullMemberIsNamed) {
  for (const char* member :
       {"device_count", "device_info", "device_open", "device_close", "query_ops", "weight_layout",
        "weight_create", "weight_free", "buffer_create", "buffer_free", "buffer_write",
        "buffer_read", "plan_compile", "plan_execute", "plan_stats", "plan_free", "device_wait",
        "shutdown"}) {
    ExpectRefused(std::string("null=") + member, "plugin.contract",
                  {std::string("'") + member + "'", "null"});
  }
}

TEST(Handshake, NameHasToBeAName) {
  ExpectRefused("null_name", "plugin.contract", {"'name'"});
  ExpectRefused("name=", "plugin.contract", {"'name'"});
  ExpectRefused("name=Two Words", "plugin.contract", {"'Two Words'", "[a-z0-9_-]"});
  ExpectRefused("name=../../x", "plugin.contract", {"'name'"});
  ExpectRefused("name=" + std::string(65, 'a'), "plugin.contract", {"1 to 64"});
}

TEST(Handshake, NoTable) { ExpectRefused("null_table", "plugin.contract", {"without a table"}); }

TEST(Handshake, PluginRefusesByItself) {
  ExpectRefused("fail=query", "plugin.refused", {"failing as told"});
  ExpectRefused("silent=query", "plugin.refused", {"no reason"});
  ExpectRefused("garbage=query", "plugin.contract", {"4711"});
}

TEST(Handshake, SdkPluginWhoseConstructorThrows) {
  const ScopedVariable script("RULLAMA_FAKE_SDK", "construct:std");
  const TestHost host;
  ExpectError(Plugin::Load(FakeFile("fake_sdk"), host.get()), "plugin.refused",
              {"a standard exception"});
}

// The other direction: the SDK refuses a host it cannot work with.
class HostTable : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto query = LoadQueryFunction(FakeFile("fake_sdk"));
    ASSERT_TRUE(query);
    query_ = *query;
  }
  const rl_plugin_v1* Query(const rl_host_v1* table) {
    const rl_plugin_v1* plugin = nullptr;
    rl_error error{};
    error.struct_size = sizeof(error);
    code_ = query_(table, &plugin, &error);
    text_ = error.message;
    return plugin;
  }

  rl_plugin_query_fn query_ = nullptr;
  int32_t code_ = 0;
  std::string text_;
  const TestHost host_;
  rl_host_v1 table_ = *PluginHost::MakeTable(host_.get(), "test");
};

TEST_F(HostTable, GoodHost) {
  const rl_plugin_v1* plugin = Query(&table_);
  ASSERT_NE(plugin, nullptr) << text_;
  EXPECT_EQ(code_, RL_OK);
  plugin->shutdown(plugin->context);
}

TEST_F(HostTable, OtherMajor) {
  table_.abi_major = 2;
  EXPECT_EQ(Query(&table_), nullptr);
  EXPECT_EQ(code_, RL_UNSUPPORTED);
  EXPECT_THAT(text_, HasSubstr("speaks version " + WithMinor(1) + ", the host " + WithMinor(2)));
}

TEST_F(HostTable, TooSmall) {
  table_.struct_size = 16;
  EXPECT_EQ(Query(&table_), nullptr);
  EXPECT_EQ(code_, RL_UNSUPPORTED);
  EXPECT_THAT(text_, HasSubstr("16 bytes"));
}

TEST_F(HostTable, NullFunctionAndNullTable) {
  table_.blob_put = nullptr;
  EXPECT_EQ(Query(&table_), nullptr);
  EXPECT_EQ(code_, RL_INVALID_ARGUMENT);
  EXPECT_EQ(Query(nullptr), nullptr);
  EXPECT_EQ(code_, RL_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace rullama::testing
