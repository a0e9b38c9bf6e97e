// rullama bench from outside: a table that stands alone, and the same as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> BenchArguments(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", "-m", TinyModel(), "-p", "8", "-n",
                                        "4",     "-r", "2",         "-t", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Bench, TableNamesModelBackendThreadsAndBuild) {
  const RunResult result = RunRullama(BenchArguments({}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"| model ", "| threads |", "tiny-e2b-Q4_K_M.gguf Q4_K_M |", "| cpu ",
                           " pp8 |", " tg4 |", "\ndevice: ", "\nbuild: rullama "}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(Bench, JsonHasTheSameFields) {
  const RunResult result = RunRullama(BenchArguments({"--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json record = json::parse(result.out.substr(0, result.out.find('\n')));
  EXPECT_EQ(record["model"], "tiny-e2b-Q4_K_M.gguf");
  EXPECT_EQ(record["quantization"], "Q4_K_M");
  EXPECT_EQ(record["backend"], "cpu");
  EXPECT_EQ(record["threads"], 1);
  EXPECT_GT(record["parameters"].get<uint64_t>(), 1'000'000u);
  EXPECT_GT(record["model_bytes"].get<uint64_t>(), 1'000'000u);
  EXPECT_THAT(record["driver"].get<std::string>(), HasSubstr("kernels for"));
  const RunResult version = RunRullama({"--version"});
  EXPECT_THAT(version.out, HasSubstr(record["version"].get<std::string>()));
  EXPECT_TRUE(record.contains("commit"));
}

}  // namespace
}  // namespace rullama::cli_test
