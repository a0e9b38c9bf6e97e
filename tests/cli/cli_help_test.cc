// --help of each command: its own options, defaults and examples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHelpedCommands[] = {
    "run",        "encode", "logits", "perplexity",  "bench",  "tokenize",
    "detokenize", "list",   "show",   "inspect",     "graph",  "backends",
    "quantize",   "synth",  "diff",   "new-backend", "config", "profile",
    "pull",       "rm",     "embed",  "imatrix"};

TEST(Help, EachCommandHasExamplesOfItsOwn) {
  for (const std::string command : kHelpedCommands) {
    const RunResult result = RunRullama({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    const size_t examples = result.out.find("Example");
    ASSERT_NE(examples, std::string::npos) << command;
    const std::string example = command == "run" ? "rullama run" : "rullama " + command;
    EXPECT_NE(result.out.find(example, examples), std::string::npos) << command;
    if (command != "run") {
      EXPECT_THAT(result.out, Not(HasSubstr("Why is the sky blue?\"  "))) << command;
    }
    EXPECT_THAT(result.out, Not(HasSubstr("\n\n\n"))) << command;
  }
  EXPECT_THAT(RunRullama({"--help"}).out, Not(HasSubstr("\n\n\n")));
}

TEST(Help, DefaultsAreShown) {
  const std::string run = RunRullama({"run", "--help"}).out;
  for (const char* text :
       {"Temperature; 0 always takes the best token [default 1]", "0 keeps all [default 64]",
        "[default the model's context length, at most 8192]", "[default one per core]",
        "[default -1: until the turn ends or the context is full]", "[default cpu]"}) {
    EXPECT_THAT(run, HasSubstr(text));
  }
  EXPECT_THAT(RunRullama({"perplexity", "--help"}).out, HasSubstr("[default 512]"));
}

TEST(Help, AnOptionHasOneDefault) {
  const std::string serve = RunRullama({"serve", "--help"}).out;
  EXPECT_THAT(serve, HasSubstr("same time [default auto: at least 4, by the device]\n"));
  for (size_t at = serve.find("[default "); at != std::string::npos;) {
    const size_t next = serve.find("[default ", at + 1);
    if (next == std::string::npos) break;
    EXPECT_NE(serve.substr(at, next - at).find("\n  -"), std::string::npos)
        << "two defaults before: " << serve.substr(next, 40);
    at = next;
  }
}

TEST(Help, CommandsTakeOnlyOptionsThatDoSomething) {
  for (const char* command : {"tokenize", "detokenize"}) {
    const std::string help = RunRullama({command, "--help"}).out;
    for (const char* option : {"--backend", "--threads", "--plugin", "--ctx-size", "--verbose"}) {
      EXPECT_THAT(help, Not(HasSubstr(option))) << command;
    }
  }
  const std::string config = RunRullama({"config", "--help"}).out;
  EXPECT_THAT(config, Not(HasSubstr("--plugin")));
  EXPECT_THAT(config, Not(HasSubstr("--verbose")));
}

}  // namespace
}  // namespace rullama::cli_test
