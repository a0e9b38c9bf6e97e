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
      {{"--list-devices"}, "rullama backends"},
      {{"-np", "4"}, "use 'rullama serve --parallel N'"},
      {{"-cb"}, "not needed: 'rullama serve'"},
      {{"--api-key", "k"}, "use 'rullama serve --api-key-file FILE'"},
      {{"--rpc", "host:1"}, "not supported: all devices"},
      {{"-ot", "exps=CPU"}, "use placement.host_weights"},
      {{"-tb", "4"}, "use -t N"},
      {{"--draft-n", "8"}, "use --draft-max N"},
      {{"-ngld", "99"}, "not supported: the draft model runs"},
      {{"-hff", "m.gguf"}, "rullama pull -hf USER/REPO --file PATH"},
      {{"-hft", "hf_x"}, "set HF_TOKEN"},
      {{"-no-cnv"}, "use --raw"},
      {{"-st"}, "not needed: -p answers"},
      {{"-mli"}, "use -f FILE"},
      {{"-co"}, "use --color"},
      {{"--mlock"}, "not supported: the system decides"},
      {{"--no-mmap"}, "not supported: model files"},
      {{"--jinja"}, "not needed: the chat template"},
      {{"--chat-template", "gemma"}, "not supported: the chat template"},
      {{"--adapter", "F"}, "use --lora FILE"},
      {{"-mm", "F"}, "use --mmproj FILE"},
      {{"--image-max-tokens", "70"}, "use --image-tokens N"},
      {{"--grammar", "G"}, "not supported: an answer"},
      {{"--format", "json"}, "use --json-schema"},
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
      {{"server"}, "the server is 'rullama serve'"},
      {{"ps"}, "nothing runs in the background"},
      {{"cp", "gemma4:e2b"}, "use 'ollama'"},
      {{"embeddings"}, "POST /v1/embeddings"},
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

// The configuration that these options make, as `config --show` prints it.
RunResult Shown(std::vector<std::string> options) {
  options.insert(options.begin(), {"config", "--show"});
  return RunRullama(options);
}

TEST(Habits, GpuLayersChooseTheBackend) {
  EXPECT_THAT(Shown({"-ngl", "0"}).out, HasSubstr("name: \"cpu\"  # flag"));
  for (const char* all : {"99", "auto", "all", "-1"}) {
    EXPECT_THAT(Shown({"-ngl", all}).out, HasSubstr("name: \"auto\"  # flag")) << all;
  }
  EXPECT_THAT(Shown({"--n-gpu-layers", "99", "--backend", "vulkan"}).out,
              HasSubstr("name: \"vulkan\""));
  EXPECT_THAT(Shown({"-ngl", "99", "--backend", "cpu"}).out, HasSubstr("name: \"cpu\""));
  const RunResult both = Shown({"-ngl", "0", "--backend", "vulkan"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("but --backend is 'vulkan'"));
  EXPECT_THAT(Shown({"-ngl", "many"}).err, HasSubstr("expected a number, auto or all"));
}

TEST(Habits, DraftModelsHaveTheirNamesOfLlamaCpp) {
  for (const char* option : {"-md", "--draft", "--model-draft", "--draft-model"}) {
    const std::string shown =
        Shown({option, "small.gguf", "--draft-lookup", "--draft-max", "16", "--draft-min", "2"})
            .out;
    EXPECT_THAT(shown, HasSubstr("model: \"small.gguf\"  # flag")) << option;
    EXPECT_THAT(shown, HasSubstr("lookup: true  # flag"));
    EXPECT_THAT(shown, HasSubstr("max: 16  # flag"));
    EXPECT_THAT(shown, HasSubstr("min: 2  # flag"));
  }
  EXPECT_THAT(Shown({"--draft-max", "2", "--draft-min", "3"}).err, HasSubstr("[config.conflict]"));
  const RunResult length = Shown({"--draft", "8"});
  EXPECT_EQ(length.exit_code, 2);
  EXPECT_THAT(length.err, HasSubstr("use --draft-max N"));
}

TEST(Habits, ExpertsOnTheProcessor) {
  for (const char* option : {"-ncmoe", "--n-cpu-moe"}) {
    EXPECT_THAT(Shown({option, "3"}).out, HasSubstr("host_expert_layers: 3  # flag")) << option;
  }
  for (const char* option : {"-cmoe", "--cpu-moe"}) {
    EXPECT_THAT(Shown({option}).out, HasSubstr("host_expert_layers: 2147483647  # flag"));
  }
  const RunResult wrong = Shown({"-ncmoe", "some"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--n-cpu-moe"));
}

TEST(Habits, AModelIsNotSplit) {
  const auto run = [](const char* layers) {
    return RunRullama(
        {"-m", TinyModel(), "--backend", "cpu", "-ngl", layers, "-p", "Hi", "-n", "1"});
  };
  const RunResult part = run("3");
  EXPECT_EQ(part.exit_code, 2);
  EXPECT_THAT(part.err, AllOf(HasSubstr("--gpu-layers 3 would split the 8 layers"),
                              HasSubstr("--tensor-split 5,3")));
  EXPECT_EQ(run("8").exit_code, 0);
  EXPECT_EQ(run("99").exit_code, 0);
}

TEST(Habits, SeveralDevicesShareAModel) {
  const std::string shown = Shown({"-dev", "Vulkan0,cpu", "-ts", "3,1", "-sm", "layer"}).out;
  EXPECT_THAT(shown, AllOf(HasSubstr("devices: [\"vulkan:0\", \"cpu\"]  # flag"),
                           HasSubstr("name: \"vulkan\""), HasSubstr("split: [3.0, 1.0]  # flag")));
  EXPECT_THAT(Shown({"-dev", "none"}).out, HasSubstr("devices: [\"cpu\"]"));
  EXPECT_THAT(Shown({"--devices", "vulkan:0,vulkan:1", "-ngl", "99"}).out,
              HasSubstr("devices: [\"vulkan:0\", \"vulkan:1\"]"));
}

TEST(Habits, TheMainDeviceOfSeveralMayRunAlone) {
  EXPECT_THAT(Shown({"-dev", "vulkan:0,cpu", "-sm", "none", "-mg", "1"}).out,
              HasSubstr("devices: [\"cpu\"]  # flag"));
  EXPECT_THAT(Shown({"-dev", "vulkan:0,cpu", "-sm", "none"}).out,
              HasSubstr("devices: [\"vulkan:0\"]"));
  EXPECT_THAT(Shown({"--backend", "vulkan", "-mg", "1"}).out, HasSubstr("device: \"1\"  # flag"));
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"-sm", "row"}, "--split-mode cannot be row"},
      {{"-sm", "rows"}, "expected layer or none"},
      {{"-dev", "vulkan,cpu", "-sm", "none", "-mg", "2"}, "a whole number from 0 to 1"},
      {{"-ts", "3,x"}, "placement.split"},
      {{"-ts", "1,0"}, "a number from 0.001"},
      {{"-dev", "vulkan,cpu", "--backend", "cpu"}, "[config.conflict]"},
  };
  for (const auto& [options, message] : refused) {
    const RunResult result = Shown(options);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST(Habits, KeysAndValuesHaveTypesOfTheirOwn) {
  EXPECT_THAT(Shown({"-ctk", "f32"}).out,
              AllOf(HasSubstr("kv_dtype: f32  # flag"), HasSubstr("v_dtype: f16  # flag")));
  EXPECT_THAT(Shown({"-ctk", "q8_0", "-ctv", "q4_0"}).out,
              AllOf(HasSubstr("kv_dtype: q8_0  # flag"), HasSubstr("v_dtype: q4_0  # flag")));
  EXPECT_THAT(Shown({"-ctv", "q5_1"}).err,
              HasSubstr("expected one of auto, f32, f16, bf16, q8_0, q4_0"));
}

TEST(Habits, FusedAttentionIsAlwaysOn) {
  for (const std::vector<std::string>& on :
       {std::vector<std::string>{"-fa"}, {"-fa", "on"}, {"-fa", "1"}, {"--flash-attn", "auto"}}) {
    EXPECT_EQ(Shown(on).exit_code, 0) << on.back();
  }
  for (const char* off : {"off", "0"}) {
    EXPECT_THAT(Shown({"-fa", off}).err, HasSubstr("cannot be off")) << off;
  }
}

TEST(Habits, AConversationNeedsATerminal) {
  for (const char* name : {"-i", "-cnv", "--conversation"}) {
    const RunResult result = RunRullama({"-m", TinyModel(), "-p", "Hi", name});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, HasSubstr("--conversation needs a terminal")) << name;
  }
  ProgramOnTerminal chat({"-m", TinyModel(), "-cnv", "-p", "Hi", "-n", "1", "--no-history", "-v"});
  chat.Expect("14 prompt tokens");
  chat.Expect("\n>");
  chat.Type("/bye\r");
  EXPECT_EQ(chat.Wait(), 0);
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
