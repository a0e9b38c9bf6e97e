// Command line and configuration: exit code 2, and a message that helps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <utility>

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
      {{"quantize", "a"}, "'quantize' also needs OUT (see rullama quantize --help)"},
      {{"quantize", "a", "b"}, "found neither, expected either a TYPE or --copy; TYPE is one of"},
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

TEST(Usage, AnEmptyConfigurationNameIsNoDefault) {
  const RunResult result = RunRullama({"config", "--config", ""});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--config is empty"));
  EXPECT_THAT(result.err, HasSubstr("[config.open]"));
}

TEST(Usage, ConfigSaysThatAFileIsRight) {
  const std::string file = RULLAMA_SOURCE_DIR "/configs/tiny.yaml";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"config", file}, {"config", "--config", file}}) {
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "'" + file + "': ok\n");
  }
  const std::string wrong =
      TemporaryFile("rising.yaml", "sampler:\n  diffusion: {t_min: 5, t_max: 1}\n").string();
  const RunResult result = RunRullama({"config", wrong});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("[config.conflict]"));
}

TEST(Usage, SettingsAreUtf8) {
  RunOptions options;
  options.environment = {"RULLAMA_BACKEND=\xff"};
  const RunResult environment = RunRullama({"config", "--show"}, options);
  EXPECT_EQ(environment.exit_code, 2);
  EXPECT_THAT(environment.err, HasSubstr("RULLAMA_BACKEND: backend.name: expected UTF-8 text"));
  EXPECT_THAT(environment.out, IsEmpty());
  EXPECT_EQ(RunRullama({"config", "--show", "--backend", "\xff"}).exit_code, 2);
}

TEST(Usage, MinusOneDrawsASeedAndZeroIsTheWholeContext) {
  const std::vector<std::string> run = {"-m", TinyModel(), "--raw", "-p",     "x",
                                        "-n", "1",         "-v",    "--seed", "-1"};
  const auto line = [](const std::string& text, const std::string& begin) {
    const size_t at = text.find(begin);
    return at == std::string::npos ? std::string() : text.substr(at, text.find('\n', at) - at);
  };
  const RunResult first = RunRullama(run);
  const RunResult second = RunRullama(run);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(line(first.err, "seed: "), line(second.err, "seed: "));
  const RunResult whole =
      RunRullama({"-m", TinyModel(), "--raw", "-p", "x", "-n", "1", "-v", "-c", "0"});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(line(whole.err, "model: "), HasSubstr("context 2048"));
}

TEST(Usage, TokensAndIdsMayBeWords) {
  const RunResult ids = RunRullama({"tokenize", "-m", TinyModel(), "--no-bos", "The prince"});
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_EQ(ids.out,
            RunRullama({"tokenize", "-m", TinyModel(), "--no-bos", "-p", "The prince"}).out);
  std::vector<std::string> words = {"detokenize", "-m", TinyModel()};
  std::string digits;
  for (const char c : ids.out) {
    if (c >= '0' && c <= '9') {
      digits += c;
    } else if (!digits.empty()) {
      words.push_back(std::exchange(digits, ""));
    }
  }
  ASSERT_GT(words.size(), 4U);
  EXPECT_EQ(RunRullama(words).out, "The prince");
  const RunResult twice = RunRullama({"tokenize", "-m", TinyModel(), "a", "-p", "b"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("there are two inputs"));
}

TEST(Usage, MoreThreadsThanProcessorsAreWarnedOf) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  const int processors = CPU_COUNT(&allowed);
  const auto run = [](int threads) {
    return RunRullama(
        {"-m", TinyModel(), "--raw", "-p", "x", "-n", "1", "-t", std::to_string(threads)});
  };
  const RunResult more = run(processors + 1);
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr(std::to_string(processors + 1) + " threads share " +
                                  std::to_string(processors) + " processor"));
  EXPECT_EQ(run(1).err.find("threads share"), std::string::npos);
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
