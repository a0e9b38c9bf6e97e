// A plugin that breaks the contract is reported to the user with its name and exit code 3. The file
// also tests which names `new-backend` refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kPluginExit = 3;
constexpr int kUsageExit = 2;

RunResult RunFaulty(const std::string& fault, const std::string& model) {
  RunOptions options;
  options.environment.push_back(fault);
  return RunRullama({"run", "-m", model, "--raw", "--plugin", RULLAMA_FAULTY_PLUGIN, "--backend",
                     "faulty", "-p", "It was in July", "-n", "4", "--greedy"},
                    options);
}

TEST(PluginFault, TokensThatAreNoneAreTheFaultOfThePlugin) {
  const RunResult large = RunFaulty("RULLAMA_FAULTY_READS=127", TinyModel());
  EXPECT_EQ(large.exit_code, kPluginExit) << large.err;
  EXPECT_THAT(large.err, AllOf(HasSubstr("plugin 'faulty' chose token 2139062143"),
                               HasSubstr("expected 0 to 2047"), HasSubstr("[backend.token]")));
  const RunResult negative = RunFaulty("RULLAMA_FAULTY_READS=128", TinyModel());
  EXPECT_EQ(negative.exit_code, kPluginExit) << negative.err;
  EXPECT_THAT(negative.err, AllOf(HasSubstr("plugin 'faulty' chose token -2139062144"),
                                  Not(HasSubstr("logit_bias"))));
  const RunResult canvas = RunFaulty("RULLAMA_FAULTY_READS=127", TinyDiffusionModel());
  EXPECT_EQ(canvas.exit_code, kPluginExit) << canvas.err;
  EXPECT_THAT(canvas.err, AllOf(HasSubstr("plugin 'faulty' chose token 2139062143 for row 0"),
                                HasSubstr("[backend.token]")));
}

TEST(PluginFault, AWeightOfAllMemoryThereIsIsRefused) {
  const RunResult result = RunFaulty("RULLAMA_FAULTY_LAYOUT=1", TinyModel());
  EXPECT_EQ(result.exit_code, kPluginExit) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("plugin 'faulty'"), HasSubstr("weight_layout"),
                                HasSubstr("18446744073709551615"), HasSubstr("[plugin.contract]")));
}

TEST(PluginFault, ExitIsNotSilent) {
  const RunResult result = RunFaulty("RULLAMA_FAULTY_EXIT=1", TinyModel());
  EXPECT_EQ(result.exit_code, kPluginExit);
  EXPECT_THAT(result.err, HasSubstr("plugin 'faulty' ended the program inside device_count"));
}

TEST(PluginFault, DenyNamesAllKindsAndSaysWhatToSet) {
  const auto config = TemporaryFile("deny.yaml", "placement:\n  fallback: deny\n");
  RunOptions options;
  options.environment.push_back("RULLAMA_FAKE=");
  const RunResult result =
      RunRullama({"run", "-m", TinyModel(), "--config", config, "--plugin", RULLAMA_FAKE_PLUGIN,
                  "--backend", "fake", "-p", "x", "-n", "1"},
                 options);
  EXPECT_EQ(result.exit_code, kPluginExit);
  EXPECT_THAT(result.err, AllOf(HasSubstr("refused as well: "), HasSubstr("matmul (only copy)"),
                                HasSubstr("or to 'allow' to let the host run what is refused")));
}

RunResult NewBackend(const std::string& name) {
  const auto folder = TemporaryDirectory() / ("new_" + name);
  std::filesystem::remove_all(folder);
  return RunRullama({"new-backend", name, "--folder", folder});
}

TEST(NewBackend, RefusesWhatCannotBeANamespaceAndTheReference) {
  for (const char* name : {"class", "std", "and_eq", "unix", "rullama", "reference", "auto"}) {
    const RunResult result = NewBackend(name);
    EXPECT_EQ(result.exit_code, kUsageExit) << name;
    EXPECT_THAT(result.err, HasSubstr("[new_backend.name]"));
    EXPECT_FALSE(std::filesystem::exists(TemporaryDirectory() / (std::string("new_") + name)));
  }
}

TEST(NewBackend, WarnsOfTheNamesOfOurs) {
  for (const char* name : {"cpu", "opencl", "vulkan"}) {
    const RunResult result = NewBackend(name);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("is also a backend of rullama"));
  }
  EXPECT_THAT(NewBackend("classy").err, IsEmpty());
}

}  // namespace
}  // namespace rullama::cli_test
