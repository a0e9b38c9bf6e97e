// Command line and configuration: exit code 2, and a message that helps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Usage, HelpAndVersionGoToStdout) {
  const RunResult help = RunRullama({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
  EXPECT_THAT(help.out, HasSubstr("tokenize"));
  EXPECT_THAT(help.err, IsEmpty());
  const RunResult version = RunRullama({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, HasSubstr("rullama "));
  EXPECT_EQ(RunRullama({"run", "--help"}).exit_code, 0);
}

TEST(Usage, UnknownOptionNamesTheNearest) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", "--tmep", "1"}, {"--tmep=1"}}) {
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("did you mean '--temp'?"));
    EXPECT_THAT(result.err, HasSubstr("[usage.unknown_option]"));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST(Usage, UnknownCommandNamesTheNearest) {
  const RunResult result = RunRullama({"tokenise"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'tokenize'?"));
}

TEST(Usage, NoModelAndNoPromptAreToldApart) {
  EXPECT_THAT(RunRullama({"-p", "hi"}).err, HasSubstr("[usage.model]"));
  const RunResult no_prompt = RunRullama({"-m", TinyModel()});
  EXPECT_EQ(no_prompt.exit_code, 2);
  EXPECT_THAT(no_prompt.err, HasSubstr("[usage.prompt]"));
}

struct BadFlag {
  std::vector<std::string> arguments;
  std::string id;
};

TEST(Usage, ValuesOutOfRangeAreRefused) {
  const BadFlag kCases[] = {
      {{"--temp", "nan"}, "[config.range]"}, {{"--top-p", "2"}, "[config.range]"},
      {{"--temp", "-1"}, "[config.range]"},  {{"-c", "-1"}, "[config.range]"},
      {{"-c", "0x10"}, "[config.range]"},    {{"-c", "1e18"}, "[config.range]"},
      {{"--seed", "12x"}, "[config.range]"}, {{"-n", "12x"}, "[input.number]"},
      {{"-n", "1e99"}, "[input.number]"},    {{"-n", "-2"}, "[input.number]"},
      {{"-c", "4096"}, "[model.capacity]"},  {{"--logit-bias", "1:2"}, "[config.range]"}};
  for (const BadFlag& bad : kCases) {
    std::vector<std::string> arguments = {"-m", TinyModel(), "--raw", "-p", "x"};
    arguments.insert(arguments.end(), bad.arguments.begin(), bad.arguments.end());
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, 2) << bad.arguments[0] << " " << bad.arguments[1] << result.err;
    EXPECT_THAT(result.err, HasSubstr(bad.id)) << bad.arguments[0] << " " << bad.arguments[1];
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST(Usage, MistakesAreToldInPlainWords) {
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } kCases[] = {
      {{"-p", "a", "-p", "b"}, "-p is given 2 times; give it once"},
      {{"-p", "a", "--prompt=b"}, "--prompt is given 2 times"},
      {{"quantize", "a"}, "'quantize' also needs OUT and TYPE (see rullama quantize --help)"},
      {{"backends", "foo"}, "'backends' takes no argument 'foo'"},
      {{"--temp"}, "--temp needs a value: N"},
      {{"--raw=maybe", "-p", "x"}, "--raw takes no value, found 'maybe'"},
      {{"--color=loud", "-p", "x"}, "--color: found 'loud', expected one of auto, always, never"},
      {{"perplexity", "-f", "x", "--max", "abc"}, "--max: found 'abc', expected a number"},
      {{"quantize", "a", "b", "Q8_0", "--threads", "0"},
       "--threads: found '0', expected a whole number from 1 to 1024"},
      {{"quantize", "a", "b", "Q8_0", "--threads", "few"},
       "--threads: found 'few', expected a whole number from 1 to 1024"},
      {{"synth", "--config", "a", "--out", "b", "--layers", "-3"},
       "--layers: found '-3', expected a whole number above 0"},
  };
  for (const auto& row : kCases) {
    const RunResult result = RunRullama(row.arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(row.message));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST(Usage, AModelFileIsNamedOnce) {
  const std::string text = TemporaryFile("notes.gguf", "these are notes").string();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"inspect", text}, {"-m", text, "-p", "x"}}) {
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_THAT(result.err, HasSubstr("model file '" + text + "'"));
    EXPECT_EQ(result.err.find(text), result.err.rfind(text)) << result.err;
  }
  const RunResult absent = RunRullama({"inspect", "/no/such/model.gguf"});
  EXPECT_THAT(absent.err, HasSubstr("error: cannot open '/no/such/model.gguf'"));
}

TEST(Usage, ZeroThreadsAreRefused) {
  EXPECT_EQ(RunRullama({"-m", TinyModel(), "--raw", "-p", "x", "-t", "0"}).exit_code, 2);
}

TEST(Usage, MistakesInTheConfigurationNameThePlace) {
  const auto path = TemporaryFile("bad.yaml", "sampler:\n  temprature: 1\n");
  const RunResult unknown = RunRullama({"--config", path.string(), "-p", "x"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("bad.yaml:2:3"));
  EXPECT_THAT(unknown.err, HasSubstr("temperature"));
  EXPECT_THAT(unknown.err, HasSubstr("[config.unknown_key]"));

  const std::string deep(10000, '[');
  const RunResult nested =
      RunRullama({"--config", TemporaryFile("deep.yaml", deep).string(), "-p", "x"});
  EXPECT_EQ(nested.exit_code, 2);
  EXPECT_THAT(nested.err, HasSubstr("[config.limit]"));
}

TEST(Usage, ConfigurationThatCannotBeReadIsAUsageError) {
  for (const std::string& path :
       {std::string("/no/such/file.yaml"), TemporaryDirectory().string()}) {
    const RunResult result = RunRullama({"--config", path, "-p", "x"});
    EXPECT_EQ(result.exit_code, 2) << path;
    EXPECT_THAT(result.err, HasSubstr("[config.open]"));
  }
}

TEST(Usage, ConfigShowsOrigins) {
  const RunResult result = RunRullama(
      {"config", "--show", "--config", RULLAMA_SOURCE_DIR "/configs/tiny.yaml", "--temp", "0.5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("temperature: 0.5"));
  EXPECT_THAT(result.out, HasSubstr("top_k: 40"));
}

TEST(Usage, EnvironmentNamesConfigurationAndBackend) {
  RunOptions options;
  options.environment = {"RULLAMA_CONFIG=" RULLAMA_SOURCE_DIR "/configs/tiny.yaml",
                         "RULLAMA_BACKEND=reference"};
  const RunResult result = RunRullama({"config", "--show"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("name: \"reference\""));
  EXPECT_THAT(result.out, HasSubstr("seed: 1812"));
}

TEST(Usage, UnknownBackendListsTheUsableOnes) {
  const RunResult result =
      RunRullama({"-m", TinyModel(), "--raw", "-p", "x", "--backend", "cpuu"}, AskingDrivers());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("[backend.unknown]"));
  EXPECT_THAT(result.err, HasSubstr("cpu"));
}

}  // namespace
}  // namespace rullama::cli_test
