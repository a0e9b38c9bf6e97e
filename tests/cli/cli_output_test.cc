// Tests the outputs of commands: names that are not plain files, names of files that are read, and
// processes that end in the middle.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "tests/cli/open_files.h"
#include "tests/cli/program.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uintmax_t kLogitBytes = 2 * kTinyVocabulary * sizeof(float);  // of the ids "2,5"

// A folder of its own for each test, so that leftovers in it can be seen.
class OutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        TemporaryDirectory() / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directory(folder_);
    ids_ = Put("ids", "2,5");
  }
  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string Put(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  [[nodiscard]] RunResult Logits(const std::string& out, const RunOptions& options = {}) const {
    return RunRullama({"logits", "-m", TinyModel(), "--tokens-file", ids_, "--out", out}, options);
  }
  static RunResult Synth(const std::string& out, const std::string& config = TinyConfig(),
                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"synth", "--config", config, "--type", "F16", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return RunRullama(words);
  }
  static std::string TinyConfig() { return RULLAMA_SOURCE_DIR "/configs/tiny.yaml"; }

  fs::path folder_;
  std::string ids_;
};

TEST_F(OutputTest, InputsAreNotReplaced) {
  const std::string model = Put("model.gguf", ReadFile(TinyModel()));
  const std::string source = Path("source.gguf");
  ASSERT_EQ(Synth(source).exit_code, 0);
  const std::string config = Put("tiny.yaml", ReadFile(TinyConfig()));
  fs::create_symlink(model, Path("link"));
  fs::create_hard_link(model, Path("hard"));
  std::vector<RunResult> results;
  for (const std::string& out : {model, Path("link"), Path("hard"), ids_}) {
    results.push_back(RunRullama({"logits", "-m", model, "--tokens-file", ids_, "--out", out}));
  }
  results.push_back(Synth(model, config, {"--vocab", model}));
  results.push_back(Synth(config, config));
  results.push_back(RunRullama({"quantize", source, source, "Q8_0"}));
  for (const RunResult& result : results) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("[io.same_file]"));
  }
  EXPECT_EQ(ReadFile(model), ReadFile(TinyModel()));
  EXPECT_EQ(ReadFile(config), ReadFile(TinyConfig()));
  EXPECT_EQ(ReadFile(ids_), "2,5");
}

// Each output of each command, with a name that the command reads.
TEST_F(OutputTest, NoCommandReplacesWhatItReads) {
  const std::string model = Put("model.gguf", ReadFile(TinyModel()));
  const std::string text = Put("text", "It was.");
  const std::string data = Put("data.jsonl", R"({"text":"It was."})");
  const std::string config = Put("model.yaml", "model: {path: model.gguf}\n");
  const std::string shapes = Put("tiny.yaml", ReadFile(TinyConfig()));
  const std::string adapter = Path("adapter");
  WriteAdapterFolder(adapter, 512);
  const std::string tensors = adapter + "/adapter_model.safetensors";
  const std::string settings = adapter + "/adapter_config.json";
  std::map<std::string, std::string> before;
  for (const std::string& name : {model, text, data, config, shapes, tensors, settings, ids_}) {
    before[name] = ReadFile(name);
  }
  const std::string folder = Path("run");
  const std::vector<std::vector<std::string>> commands = {
      {"export-lora", "-m", model, "--lora", adapter, "-o", tensors},
      {"export-lora", "-m", model, "--lora", tensors, "-o", tensors},
      {"export-lora", "-m", model, "--lora", tensors, "-o", settings},
      {"export-lora", "-m", model, "--lora", adapter + ":0.5", "-o", tensors},
      {"export-lora", "-m", model, "--lora", adapter, "-o", model},
      {"quantize", model, model, "Q8_0"},
      {"logits", "-m", model, "--tokens-file", ids_, "--out", ids_},
      {"logits", "--config", config, "--tokens-file", ids_, "--out", model},
      {"logits", "--config", config, "--tokens-file", ids_, "--out", config},
      {"encode", "-m", model, "--mmproj", data, "--image", text, "--out", text},
      {"encode", "-m", model, "--mmproj", data, "--image", text, "--out", data},
      {"synth", "--config", shapes, "--vocab", model, "--mmproj-out", model},
      {"synth", "--config", shapes, "--out", shapes},
      {"finetune", "-m", model, "--data", data, "-o", folder, "--dump-gradients", data},
      {"finetune", "-m", model, "--data", data, "-o", folder, "--dump-gradients", model},
      {"finetune", "-m", model, "--data", data, "--adapter-init", adapter, "--trace", tensors},
      {"diff", "-m", model, "-f", text, "--backends", "cpu,reference", "--html", text},
      {"diff", "-m", model, "-f", text, "--backends", "cpu,reference", "--trace", model},
      {"profile", "-m", model, "--against", text, "--html", text},
      {"bench", "-m", model, "--plot", model},
      {"graph", "-m", model, "--svg", model},
      {"graph", "--config", config, "--html", config},
      {"graph", "-m", model, "--svg", Path("new"), "--html", Path("new")},
      {"run", "-m", model, "-f", text, "--trace", text},
      {"run", "-m", model, "-p", "x", "--lora", adapter, "--trace", settings},
      {"run", "-m", model, "-p", "x", "--image", text, "--image", ids_, "--trace", text},
      {"serve", "-m", model, "--api-key-file", text, "--log-prompts", text},
      {"serve", "-m", model, "--trace", model},
  };
  for (const auto& command : commands) {
    const RunResult result = RunRullama(command);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(command) << result.err;
    EXPECT_THAT(result.err, HasSubstr("[io.same_file]")) << ::testing::PrintToString(command);
  }
  for (const auto& [name, content] : before) EXPECT_TRUE(ReadFile(name) == content) << name;
  EXPECT_FALSE(fs::exists(folder));
}

// A variable of the shell that is not set leaves an option without a file.
TEST_F(OutputTest, FilesWithoutANameAreNoticed) {
  for (const char* option : {"--resume", "--adapter-init", "--data"}) {
    const RunResult result = RunRullama({"finetune", "-m", TinyModel(), option, ""});
    EXPECT_EQ(result.exit_code, 2) << option;
    EXPECT_THAT(result.err, HasSubstr(std::string(option) + " is empty, expected F")) << option;
  }
}

TEST_F(OutputTest, LinksAreFollowedAndModesKept) {
  const std::string secret = Put("secret", "old");
  fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("secret", Path("link"));
  ASSERT_EQ(Logits(Path("link")).exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(fs::file_size(secret), kLogitBytes);
  EXPECT_EQ(fs::status(secret).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(Names().size(), 3U);
}

// Nodes of a private folder: those of /dev would be lost if this test found a fault.
TEST_F(OutputTest, DevicesAndPipesAreWrittenTo) {
  ASSERT_EQ(::mknod(Path("null").c_str(), S_IFCHR | 0600, makedev(1, 3)), 0)
      << "this test makes device nodes, which needs root (CAP_MKNOD)";
  ASSERT_EQ(::mknod(Path("full").c_str(), S_IFCHR | 0600, makedev(1, 7)), 0);
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  std::string received;
  std::jthread reader([&] { received = ReadFile(Path("fifo")); });
  EXPECT_EQ(Logits(Path("fifo")).exit_code, 0);
  reader.join();
  EXPECT_EQ(received.size(), kLogitBytes);
  EXPECT_EQ(Logits(Path("null")).exit_code, 0);
  EXPECT_EQ(Synth(Path("null")).exit_code, 0);
  EXPECT_EQ(RunRullama({"quantize", TinyModel(), Path("null"), "Q8_0"}).exit_code, 4);
  for (const RunResult& full : {Logits(Path("full")), Synth(Path("full"))}) {
    EXPECT_EQ(full.exit_code, 6) << full.err;
    EXPECT_THAT(full.err, HasSubstr("[io.disk_full]"));
  }
  EXPECT_TRUE(fs::is_character_file(Path("null")) && fs::is_character_file(Path("full")));
  EXPECT_TRUE(fs::is_fifo(Path("fifo")));
  EXPECT_EQ(Names().size(), 4U);
}

TEST_F(OutputTest, StdoutCanBeNamed) {
  const RunResult result = Logits("/dev/stdout");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.size(), kLogitBytes);
  ASSERT_EQ(Logits(Path("file")).exit_code, 0);
  EXPECT_EQ(result.out, ReadFile(Path("file")));
}

// The output's name is checked before any work: the model is not even looked for.
TEST_F(OutputTest, ImpossibleNamesAreNoticedFirst) {
  for (const std::string& out : {folder_.string(), Path("new/"), Path("no/such/file")}) {
    const std::vector<std::string> words = {
        "logits", "-m", "/no/such/model.gguf", "--tokens-file", ids_, "--out", out};
    const RunResult result = RunRullama(words);
    EXPECT_EQ(result.exit_code, 6) << out;
    EXPECT_THAT(result.err, AllOf(HasSubstr("[io.open]"), HasSubstr(out)));
    EXPECT_EQ(Synth(out).exit_code, 6);
  }
  for (const RunResult& result :
       {Logits(""), Synth(""), RunRullama({"quantize", TinyModel(), "", "Q8_0"})}) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
  }
  EXPECT_EQ(Names().size(), 1U);
}

TEST_F(OutputTest, ALimitOnTheSizeOfFilesIsAnError) {
  RunOptions options;
  options.limits = "-f 8";  // blocks of 512 bytes
  const RunResult result = Logits(Path("x.f32"), options);
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("[io.write]"), HasSubstr("ulimit -f")));
  EXPECT_EQ(Names().size(), 1U);
}

// Writes a model until a signal comes in the middle.
void EndWhileWriting(const std::string& out, int signal) {
  RunningProgram program({"synth", "--config", RULLAMA_SOURCE_DIR "/configs/e2b.yaml", "--layers",
                          "25", "--type", "F16", "--out", out});
  const fs::path folder = fs::path(out).parent_path();
  WaitUntil([&] {
    const auto entries = std::distance(fs::directory_iterator(folder), fs::directory_iterator());
    return HasUnnamedFile(folder) || entries > 2;
  });
  program.Signal(signal);
  const int code = program.Wait();
  EXPECT_THAT(code, AnyOf(128 + signal, 143, 130)) << "it was done before the signal came";
}

TEST_F(OutputTest, ASignalLeavesTheOldFileAndNothingElse) {
  const std::string out = Put("out.gguf", "old");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    EndWhileWriting(out, signal);
    EXPECT_EQ(ReadFile(out), "old") << signal;
    // A file system without unnamed files keeps what a killed process wrote until the next run.
    const int probe = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY, 0600);
    if (probe >= 0) {
      ::close(probe);
      EXPECT_EQ(Names().size(), 2U) << signal;
    }
  }
  ASSERT_EQ(Logits(out).exit_code, 0);
  EXPECT_EQ(Names().size(), 2U);
}

}  // namespace
}  // namespace rullama::cli_test
