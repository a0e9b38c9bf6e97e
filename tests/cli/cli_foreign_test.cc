// Options and commands that users of llama.cpp and Ollama type by habit: refused by their whole
// name, with what to use instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Habit {
  std::vector<std::string> typed;  // the option, then its value if it has one
  std::string advice;              // part of the message
};

std::vector<Habit> Habits() {
  return {
      {{"-ngl", "99"}, "use --backend"},
      {{"--n-gpu-layers", "99"}, "use --backend"},
      {{"--list-devices"}, "rullama backends"},
      {{"-np", "4"}, "not supported: one prompt"},
      {{"-sm", "none"}, "--backend and --device"},
      {{"-mg", "0"}, "use --device"},
      {{"-ctk", "q8_0"}, "use context.kv_dtype"},
      {{"-cmoe"}, "use placement.host_weights"},
      {{"-tb", "4"}, "use -t N"},
      {{"-md", "F"}, "not supported: speculative decoding"},
      {{"-fa"}, "not needed"},
      {{"-fa", "on"}, "not needed"},
      {{"-hf", "google/x"}, "nothing is downloaded; use -m"},
      {{"-cnv"}, "not needed: without a prompt"},
      {{"-no-cnv"}, "use --raw"},
      {{"-st"}, "not needed: -p answers"},
      {{"-mli"}, "use -f FILE"},
      {{"-co"}, "use --color"},
      {{"--mlock"}, "not supported: the system decides"},
      {{"--no-mmap"}, "not supported: model files"},
      {{"--jinja"}, "not needed: the chat template"},
      {{"--chat-template", "gemma"}, "not supported: the chat template"},
      {{"--lora", "F"}, "not supported: merge"},
      {{"--mmproj", "F"}, "not supported: prompts are text"},
      {{"--image", "F"}, "not supported: prompts are text"},
      {{"--grammar", "G"}, "not supported: an answer"},
      {{"-j", "{}"}, "not supported: an answer"},
      {{"--json-schema", "{}"}, "not supported: an answer"},
      {{"-i"}, "not needed: without a prompt"},
      {{"--no-escape"}, "not needed: text is taken as it is"},
      {{"-r", "User:"}, "use --stop"},
      {{"-ub", "512"}, "use -b N"},
      {{"--samplers", "top_k"}, "not supported: the order"},
      {{"--mirostat", "2"}, "not supported; use --top-k"},
      {{"--ignore-eos"}, "not supported: an answer ends"},
      {{"--numa", "distribute"}, "not supported: the system places threads"},
      {{"--temperature", "0.5"}, "use --temp"},
      {{"--ctx", "4096"}, "use -c N"},
      {{"--sys", "You"}, "use --system"},
      {{"--log-disable"}, "use RULLAMA_LOG=off"},
      {{"--keep", "4"}, "not supported: what stays"},
      {{"--n-predict", "4"}, "did you mean '--predict'?"},
      {{"--ctxsize", "4"}, "did you mean '--ctx-size'?"},
      {{"--top_k", "4"}, "did you mean '--top-k'?"},
      {{"-temp", "1"}, "did you mean '--temp'?"},
      {{"-n5"}, "write -n 5"},
      {{"-xyz"}, "see rullama run --help"},
  };
}

TEST(Habits, OptionsAreRefusedByNameWithWhatToUse) {
  for (const Habit& habit : Habits()) {
    for (const bool first : {false, true}) {
      std::vector<std::string> arguments = {"-m", TinyModel(), "-p", "Hi", "-n", "1"};
      const auto where = first ? arguments.begin() : arguments.end();
      arguments.insert(where, habit.typed.begin(), habit.typed.end());
      const RunResult result = RunRullama(arguments);
      EXPECT_EQ(result.exit_code, 2) << habit.typed[0];
      EXPECT_THAT(result.err, HasSubstr("has no option '" + habit.typed[0] + "'"));
      EXPECT_THAT(result.err, HasSubstr(habit.advice)) << habit.typed[0];
      EXPECT_THAT(result.err, HasSubstr("[usage.unknown_option]"));
      EXPECT_THAT(result.out, IsEmpty()) << habit.typed[0];
    }
  }
}

TEST(Habits, CommandsAreRefusedByNameWithWhatToDo) {
  const Habit kCommands[] = {
      {{"pull", "gemma4:e2b"}, "ollama pull"},
      {{"serve"}, "there is no server"},
      {{"ps"}, "nothing runs in the background"},
      {{"rm", "gemma4:e2b"}, "use 'ollama'"},
      {{"help"}, "use 'rullama --help'"},
      {{"gemma4:tiny"}, "did you mean 'rullama run gemma4:tiny'?"},
      {{TinyModel(), "Hi"}, "did you mean 'rullama run " + TinyModel() + "'?"},
      {{"Why is the sky blue?"}, "a prompt is given with -p"},
      {{"runn"}, "did you mean 'run'?"},
  };
  for (const Habit& habit : kCommands) {
    const RunResult result = RunRullama(habit.typed);
    EXPECT_EQ(result.exit_code, 2) << habit.typed[0];
    EXPECT_THAT(result.err, HasSubstr("there is no command '" + habit.typed[0] + "'"));
    EXPECT_THAT(result.err, HasSubstr(habit.advice)) << habit.typed[0];
    EXPECT_THAT(result.err, HasSubstr("[usage.command]"));
  }
}

// A value may look like an option.
TEST(Habits, ValuesAreNoOptions) {
  const RunResult result =
      RunRullama({"-m", TinyModel(), "--raw", "-p", "-ngl", "-n", "0", "--stop", "-fa"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(Habits, ColorNeedsNoValue) {
  for (const std::vector<std::string>& color :
       {std::vector<std::string>{"--color"}, {"--color", "always"}, {"--color=always"}}) {
    std::vector<std::string> arguments = {"tokenize"};
    arguments.insert(arguments.end(), color.begin(), color.end());
    arguments.insert(arguments.end(), {"-m", "/no/such/model.gguf", "-p", "x"});
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, 6) << result.err;
    EXPECT_THAT(result.err, HasSubstr("\x1b[")) << color.back();
  }
}

}  // namespace
}  // namespace rullama::cli_test
