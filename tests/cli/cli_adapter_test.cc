// --lora from outside: an adapter changes the answer, and a wrong one is an error that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;

std::string AdapterModel() {
  return std::string(RULLAMA_SOURCE_DIR) + "/tests/data/tiny-e2b-Q4_K_M.gguf";
}

void WriteText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string AdapterFolder(const std::string& name, int64_t inputs) {
  const auto folder = TemporaryDirectory() / name;
  WriteAdapterFolder(folder, inputs);
  return folder.string();
}

RunResult Answer(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"-m",      AdapterModel(), "--raw", "-p",
                                        "The sky", "-n",           "12",    "--greedy"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunRullama(arguments);
}

TEST(Adapters, ChangeTheAnswer) {
  const std::string folder = AdapterFolder("adapter_right", 512);
  const RunResult base = Answer({});
  const RunResult adapted = Answer({"--lora", folder, "-v"});
  ASSERT_EQ(base.exit_code, 0) << base.err;
  ASSERT_EQ(adapted.exit_code, 0) << adapted.err;
  EXPECT_NE(adapted.out, base.out);
  EXPECT_THAT(adapted.err, HasSubstr("2 tensors on 1 weights, rank 1, scale 4"));
  // Two adapters that cancel each other leave the answer as it was.
  const RunResult cancelled = Answer({"--lora", folder, "--lora-scaled", folder + ":-1"});
  ASSERT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_EQ(cancelled.out, base.out);
  // The same from a configuration, whose files are relative to its folder.
  const auto yaml = TemporaryDirectory() / "adapters.yaml";
  WriteText(yaml, "model:\n  adapters: [{path: adapter_right, scale: 1.0}]\n");
  EXPECT_EQ(Answer({"--config", yaml.string()}).out, adapted.out);
}

TEST(Adapters, WrongOnesAreErrors) {
  const std::string wrong = AdapterFolder("adapter_wrong", 7);
  RunResult result = Answer({"--lora", wrong});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("[1, 7]"));
  EXPECT_THAT(result.err, HasSubstr("[adapter.shape]"));
  result = Answer({"--lora", (TemporaryDirectory() / "missing").string()});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("[io.open]"));
  result = Answer({"--lora", wrong + ":1e9"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--lora"));
}

}  // namespace
}  // namespace rullama::cli_test
