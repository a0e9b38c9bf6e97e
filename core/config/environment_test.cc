#include "core/config/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Result<EnvironmentOverrides> Read(const std::map<std::string, std::string>& variables,
                                  bool privileged = false) {
  return ReadEnvironment(
      [&variables](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      privileged);
}

const std::map<std::string, std::string> kAll = {{"RULLAMA_CONFIG", "e2b.yaml"},
                                                 {"RULLAMA_BACKEND", "vulkan"},
                                                 {"RULLAMA_PLUGIN_PATH", "/a:/b::/c:"},
                                                 {"RULLAMA_LOG", "debug"}};

TEST(Environment, ReadsTheVariables) {
  const auto environment = Read(kAll);
  ASSERT_TRUE(environment.has_value());
  EXPECT_EQ(environment->config_path, "e2b.yaml");
  EXPECT_EQ(environment->backend, "vulkan");
  EXPECT_THAT(environment->plugin_paths, ElementsAre("/a", "/b", "/c"));
  EXPECT_EQ(environment->log_level, "debug");
}

TEST(Environment, AbsentAndEmptyAreNotSet) {
  for (const std::map<std::string, std::string>& variables :
       {std::map<std::string, std::string>{},
        {{"RULLAMA_CONFIG", ""}, {"RULLAMA_BACKEND", ""}, {"RULLAMA_LOG", ""}}}) {
    const auto environment = Read(variables);
    ASSERT_TRUE(environment.has_value());
    EXPECT_FALSE(environment->config_path.has_value());
    EXPECT_FALSE(environment->backend.has_value());
    EXPECT_FALSE(environment->log_level.has_value());
    EXPECT_THAT(environment->plugin_paths, IsEmpty());
  }
}

TEST(Environment, PrivilegedProcessesIgnoreWhatNamesCode) {
  const auto environment = Read(kAll, /*privileged=*/true);
  ASSERT_TRUE(environment.has_value());
  EXPECT_FALSE(environment->config_path.has_value());
  EXPECT_THAT(environment->plugin_paths, IsEmpty());
  EXPECT_EQ(environment->backend, "vulkan");
}

TEST(Environment, UnknownLogLevelIsAnError) {
  const auto environment = Read({{"RULLAMA_LOG", "loud"}});
  ASSERT_FALSE(environment.has_value());
  EXPECT_EQ(environment.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(environment.error().id, "config.environment");
}

TEST(Environment, KeysAreSeparatedByCommas) {
  const auto getenv = [](const char* name) -> const char* {
    return std::string_view(name) == "RULLAMA_API_KEY" ? "ann:one,,two" : nullptr;
  };
  const auto result = ReadEnvironment(getenv, false);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->api_keys, (std::vector<std::string>{"ann:one", "two"}));
}

}  // namespace
}  // namespace rullama
