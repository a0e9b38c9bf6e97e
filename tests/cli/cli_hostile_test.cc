// Text that means harm: escape sequences and endless names in model files, lists that are not JSON,
// plugins that cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kMaxMessageBytes = 4096;
constexpr std::string_view kClearScreen = "\x1b[2J";

std::string Number(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// A model file with one string in its metadata.
std::string OneEntry(const std::string& name, const std::string& key, const std::string& value) {
  return TemporaryFile(name, "GGUF" + Number(3, 4) + Number(0, 8) + Number(1, 8) +
                                 Number(key.size(), 8) + key + Number(8, 4) +
                                 Number(value.size(), 8) + value)
      .string();
}

// The tiny model with every `from` replaced by an escape sequence of the same length.
std::string Replaced(const std::string& name, std::string_view from) {
  std::string model = ReadFile(TinyModel());
  std::string to(kClearScreen);
  to += "\x07\xc2\x9b";
  to.resize(from.size(), 'z');
  size_t count = 0;
  for (size_t at = 0; (at = model.find(from, at)) != std::string::npos; ++count) {
    model.replace(at, from.size(), to);
  }
  EXPECT_GT(count, 0U) << from;
  return TemporaryFile(name, model).string();
}

// Newlines apart, what a terminal would act on.
bool HasControls(const std::string& text) {
  const bool c0 = std::ranges::any_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n') || byte == 0x7F;
  });
  return c0 || text.find("\xc2\x9b") != std::string::npos;
}

std::vector<std::vector<std::string>> EveryCommand(const std::string& file,
                                                   const std::string& ids) {
  const std::string out = (TemporaryDirectory() / "out").string();
  const std::string config = RULLAMA_SOURCE_DIR "/configs/tiny.yaml";
  return {
      {"-m", file, "-p", "x", "-n", "1"},
      {"run", "-m", file, "--raw", "-p", "x", "-n", "1", "-v"},
      {"logits", "-m", file, "--tokens-file", ids, "--out", out},
      {"perplexity", "-m", file, "-f", ids},
      {"bench", "-m", file, "-p", "4", "-n", "1"},
      {"tokenize", "-m", file, "-p", "x"},
      {"detokenize", "-m", file, "-p", "2,5"},
      {"inspect", file},
      {"show", file},
      {"graph", "-m", file},
      {"quantize", file, out, "Q8_0"},
      {"diff", "-m", file, "--backends", "cpu,reference"},
      {"synth", "--config", config, "--vocab", file, "--out", out},
  };
}

TEST(Hostile, NoTextOfAModelFileActsOnTheTerminal) {
  const std::string evil = std::string(kClearScreen) + "\x1b]0;pwned\x07llama";
  const std::string files[] = {
      OneEntry("esc-arch.gguf", "general.architecture", evil),
      OneEntry("long-arch.gguf", "general.architecture", std::string(60'000, 'a')),
      OneEntry("esc-key.gguf", evil + "\xc2\x9b", "x"),
      OneEntry("long-key.gguf", std::string(60'000, 'k'), "x"),
      Replaced("esc-tokenizer.gguf", "gemma4"),
      Replaced("esc-tensors.gguf", "blk.0.attn_q"),
      Replaced("esc-norms.gguf", "output_norm"),
      Replaced("esc-keys.gguf", "tokenizer.ggml.model"),
  };
  const std::string ids = TemporaryFile("ids", "2,5").string();
  for (const std::string& file : files) {
    for (const auto& words : EveryCommand(file, ids)) {
      SCOPED_TRACE(words[0] + " " + file);
      const RunResult result = RunRullama(words);
      EXPECT_LT(result.exit_code, 128) << result.err;
      EXPECT_FALSE(HasControls(result.err)) << result.err;
      EXPECT_FALSE(HasControls(result.out)) << result.out;
      if (result.exit_code != 0) {
        EXPECT_LT(result.err.size(), kMaxMessageBytes);
        EXPECT_THAT(result.err, AllOf(HasSubstr("["), HasSubstr("]\n")));
      }
    }
  }
}

TEST(Hostile, NamesAndIdsAreEscapedToo) {
  const std::string name = "/no/such/" + std::string(kClearScreen) + ".gguf";
  for (const auto& words : EveryCommand(name, TemporaryFile("ids", "2,5").string())) {
    EXPECT_FALSE(HasControls(RunRullama(words).err)) << words[0];
  }
  const std::string ids = TemporaryFile("evil_ids", "2,\x1b[2J").string();
  const RunResult result = RunRullama(EveryCommand(TinyModel(), ids)[2]);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("\\x1b"), HasSubstr("byte 2")));
  EXPECT_FALSE(HasControls(result.err)) << result.err;
}

TEST(Hostile, ListsOfIdsAreReadStrictly) {
  const struct {
    const char* text;
    const char* says;
  } kBroken[] = {
      {"[2,", "end of the text at byte 3"},
      {"[2,[3]]", "'[' at byte 3"},
      {"[[[[5", "'[' at byte 1"},
      {"2,,3", "',' at byte 2"},
      {"[2 5", "expected a ']'"},
      {"2,5]", "']' at byte 3"},
      {"[2,5]]", "']' at byte 5"},
      {"[2] 5", "'5' at byte 4"},
      {",2", "',' at byte 0"},
      {"[2,]", "']' at byte 3"},
      {"2,", "end of the text at byte 2"},
      {"2[5]", "'[' at byte 1"},
  };
  for (const auto& broken : kBroken) {
    const std::string ids = TemporaryFile("broken_ids", broken.text).string();
    RunOptions piped;
    piped.input = broken.text;
    for (const RunResult& result : {RunRullama(EveryCommand(TinyModel(), ids)[2]),
                                    RunRullama({"-m", TinyModel(), "--prompt-ids", ids, "-n", "1"}),
                                    RunRullama({"detokenize", "-m", TinyModel()}, piped)}) {
      EXPECT_EQ(result.exit_code, 2) << broken.text;
      EXPECT_THAT(result.err, AllOf(HasSubstr("[input."), HasSubstr(broken.says))) << broken.text;
    }
  }
  for (const char* good : {"[2,5]", "[ 2 ,\n5 ]\n", "2,5", "2 5\n", " 2, 5 ", "[2 5]"}) {
    RunOptions piped;
    piped.input = good;
    EXPECT_EQ(RunRullama({"detokenize", "-m", TinyModel()}, piped).exit_code, 0) << good;
  }
}

TEST(Hostile, APluginThatWasNamedIsUsedOrRefused) {
  const std::string text = TemporaryFile("text.so", std::string(300, 'x')).string();
  const fs::path open = TemporaryDirectory() / "librullama_backend_cpu.so";
  fs::copy_file(RULLAMA_CPU_PLUGIN, open, fs::copy_options::overwrite_existing);
  fs::permissions(open, fs::perms::all);
  const fs::path cut = TemporaryDirectory() / "cut.so";
  fs::copy_file(RULLAMA_CPU_PLUGIN, cut, fs::copy_options::overwrite_existing);
  fs::permissions(cut, fs::perms::owner_all);
  fs::resize_file(cut, fs::file_size(cut) / 2);
  const std::pair<std::string, std::string> kCases[] = {
      {"none.so", "No such file"},
      {text, "invalid ELF header"},
      {open.string(), "writable for everyone"},
      {cut.string(), "the file is cut off"},
  };
  for (const auto& [path, says] : kCases) {
    const auto config = TemporaryFile("plugins.yaml", "plugins: {paths: [\"" + path + "\"]}\n");
    const std::vector<std::string> tail = {"-m", TinyModel(), "--raw", "-p", "x", "-n", "1"};
    for (const std::string& backend :
         {std::string("cpu"), std::string("auto"), std::string("no")}) {
      for (std::vector<std::string> words :
           {std::vector<std::string>{"--plugin", path}, {"--config", config.string()}}) {
        words.insert(words.end(), {"--backend", backend});
        words.insert(words.end(), tail.begin(), tail.end());
        const RunResult result = RunRullama(words, AskingDrivers());
        EXPECT_EQ(result.exit_code, 3) << result.err;
        EXPECT_THAT(result.err, AllOf(HasSubstr(path), HasSubstr(says), HasSubstr("[plugin.")));
      }
    }
    const RunResult list = RunRullama({"backends", "--plugin", path}, AskingDrivers());
    EXPECT_EQ(list.exit_code, 3);
    EXPECT_THAT(list.out, AllOf(HasSubstr("cpu: loaded"), HasSubstr(says)));
    EXPECT_THAT(list.err, HasSubstr("[plugin."));
  }
}

// A damaged cpu plugin of a full disk must not end the program with SIGBUS, wherever it was cut.
TEST(Hostile, APluginMayBeCutAnywhere) {
  const fs::path cut = TemporaryDirectory() / "cut_anywhere.so";
  fs::copy_file(RULLAMA_CPU_PLUGIN, cut, fs::copy_options::overwrite_existing);
  fs::permissions(cut, fs::perms::owner_all);
  const uintmax_t whole = fs::file_size(cut);
  // Downwards, so that one copy is enough.
  for (int part = 15; part >= 0; --part) {
    fs::resize_file(cut, whole * static_cast<uintmax_t>(part) / 16 + 4096);
    const RunResult result =
        RunRullama({"-m", TinyModel(), "--plugin", cut.string(), "--raw", "-p", "x", "-n", "1"});
    EXPECT_EQ(result.exit_code, 3) << part << result.err;
    EXPECT_THAT(result.err, HasSubstr("[plugin.load]")) << part;
  }
}

// Readers recurse where values are copied and destroyed: each of them refuses a value that is
// nested too deeply before it is built.
TEST(Hostile, DeepFilesAreRefusedByEveryReader) {
  constexpr size_t kDepth = 100'000;
  const std::string list = std::string(kDepth, '[') + std::string(kDepth, ']');
  std::string maps;
  for (size_t i = 0; i < kDepth; ++i) maps += "{a: ";
  const std::string object = R"({"messages":)" + list + "}";
  const fs::path folder = TemporaryDirectory() / "deep";
  const auto put = [&](const std::string& name, const std::string& text) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << text;
    return (folder / name).string();
  };
  const std::string lines = put("lines.jsonl", object);
  const std::string whole = put("whole.json", list);
  const std::string good = put("good.jsonl", R"({"text":"It was."})");
  WriteAdapterFolder(folder / "config", 512);
  put("config/adapter_config.json", object);
  WriteAdapterFolder(folder / "header", 512);
  put("header/adapter_model.safetensors", Number(object.size(), 8) + object);
  put("place/0000001/training_state.json", object);
  put("place/0000001/settings.json", "{}");
  put("settings/0000001/training_state.json", "{}");
  put("settings/0000001/settings.json", object);
  put("store/manifests/registry.ollama.ai/library/deep/latest", object);

  const std::string model = TinyModel();
  const std::string out = (folder / "out").string();
  const std::vector<std::string> run = {"run", "-m", model, "-p", "x", "-n", "1"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::vector<std::string> train = {"finetune", "-m", model, "-o", out, "--iters", "1"};
  const std::vector<std::vector<std::string>> commands = {
      with(train, {"--data", lines}),
      with(train, {"--data", whole}),
      with(train, {"--data", good, "--resume", (folder / "place").string()}),
      with(train, {"--data", good, "--resume", (folder / "settings").string()}),
      with(run, {"--lora", (folder / "config").string()}),
      with(run, {"--lora", (folder / "header").string()}),
      with(run, {"--tools", whole}),
      with(run, {"--json-schema-file", lines}),
      {"logits", "-m", model, "--parts", whole, "--out", out + ".f32"},
      {"profile", "-m", model, "-p", "1", "-n", "1", "--no-peaks", "--against", lines},
      {"config", whole},
      {"config", put("maps.yaml", maps)},
  };
  for (const auto& command : commands) {
    const RunResult result = RunRullama(command);
    const std::string words = ::testing::PrintToString(command);
    EXPECT_GT(result.exit_code, 0) << words;
    EXPECT_LT(result.exit_code, 128) << words;
    EXPECT_THAT(result.err, HasSubstr("[")) << words;
    EXPECT_LT(result.err.size(), kMaxMessageBytes) << words;
  }
  for (const char* command : {"tokenize", "detokenize"}) {
    const RunResult result = RunRullama({command, "-m", model, "--jsonl"}, {.input = list});
    EXPECT_EQ(result.exit_code, 2) << command << result.err;
    EXPECT_THAT(result.err, HasSubstr("nested more than")) << command;
  }
  const RunResult listed =
      RunRullama({"list"}, {.environment = {"OLLAMA_MODELS=" + (folder / "store").string()}});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("cannot be used"));
}

}  // namespace
}  // namespace rullama::cli_test
