// Models by the name Ollama gives them: list, show, run NAME PROMPT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// A store with gemma4:tiny, which is the small model, and gemma4:broken, whose blob is missing.
class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string model_digest(64, 'a');
    const std::string config_digest(64, 'c');
    fs::create_directories(store_ / "blobs");
    fs::copy_file(TinyModel(), store_ / "blobs" / ("sha256-" + model_digest),
                  fs::copy_options::overwrite_existing);
    std::ofstream(store_ / "blobs" / ("sha256-" + config_digest))
        << R"({"model_format":"gguf","model_family":"gemma4","model_type":"5M","file_type":"Q4_K_M"})";
    AddManifest("tiny", model_digest, config_digest);
    AddManifest("broken", std::string(64, 'b'), config_digest);
  }
  void TearDown() override { fs::remove_all(store_); }

  void AddManifest(const std::string& tag, const std::string& model,
                   const std::string& config) const {
    const fs::path folder = store_ / "manifests/registry.ollama.ai/library/gemma4";
    fs::create_directories(folder);
    const json layer = {{"mediaType", "application/vnd.ollama.image.model"},
                        {"digest", "sha256:" + model},
                        {"size", fs::file_size(TinyModel())}};
    std::ofstream(folder / tag) << json{{"config", {{"digest", "sha256:" + config}, {"size", 1}}},
                                        {"layers", {layer}}};
  }
  RunResult Run(const std::vector<std::string>& arguments) const {
    RunOptions options;
    options.environment = {"OLLAMA_MODELS=" + store_.string(),
                           "HF_HUB_CACHE=" + (store_ / "hub").string()};
    return RunRullama(arguments, options);
  }

  const fs::path store_ = TemporaryDirectory() / "store";
};

TEST_F(StoreTest, ListNamesTheModelsAndWhatIsWrongWithThem) {
  for (const char* command : {"list", "ls"}) {
    const RunResult result = Run({command});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("NAME"));
    EXPECT_THAT(result.out, HasSubstr("gemma4:tiny"));
    EXPECT_THAT(result.out, HasSubstr("8.9 MiB"));
    EXPECT_THAT(result.out, HasSubstr("Q4_K_M"));
    EXPECT_THAT(result.out, HasSubstr("cannot be used [store.blob_missing]"));
    EXPECT_THAT(result.err, HasSubstr("'gemma4:broken': "));
  }
  std::istringstream lines(Run({"list", "--json"}).out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json record = json::parse(line);
    EXPECT_EQ(record.contains("error"), record["name"] == "gemma4:broken") << line;
  }
  EXPECT_EQ(count, 2);
}

TEST_F(StoreTest, AnEmptyStoreSaysWhereModelsComeFrom) {
  fs::remove_all(store_);
  const RunResult result = Run({"list"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("there is no model in '" + store_.string() + "'"));
  EXPECT_THAT(result.err, HasSubstr("rullama pull"));
}

TEST_F(StoreTest, ShowIsShortAndSaysWhetherTheModelRuns) {
  for (const std::string& name : {std::string("gemma4:tiny"), TinyModel()}) {
    const RunResult result = Run({"show", name});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("model          " + name + "\n"));
    EXPECT_THAT(result.out, HasSubstr("quantisation   Q4_K_M\n"));
    EXPECT_THAT(result.out, HasSubstr("context        2048 tokens\n"));
    EXPECT_THAT(result.out, HasSubstr("rullama run    yes\n"));
  }
}

TEST_F(StoreTest, ShowSaysWhyAModelDoesNotRun) {
  std::string bytes = ReadFile(TinyModel());
  const size_t at = bytes.find("gemma4");  // the value of general.architecture
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 6, "llama9");
  const RunResult result = Run({"show", TemporaryFile("other.gguf", bytes).string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("architecture   llama9\n"));
  EXPECT_THAT(result.out, HasSubstr("rullama run    no: "));
  EXPECT_THAT(result.out, HasSubstr("[model.arch]"));
}

// Commands that chat warn of a model that cannot, and no others.
TEST_F(StoreTest, BaseModelsAreNamed) {
  const std::string config =
      TemporaryFile("base.yaml",
                    "architecture: {family: gemma3, layers: 1, width: 64, heads: 2, kv_heads: 1,\n"
                    "  head_dim: 32, ffn: 64, sliding_window: 32, pattern: 6, vocabulary: 1024,\n"
                    "  context_length: 256}\n")
          .string();
  const std::string model = (TemporaryDirectory() / "base.gguf").string();
  const RunResult made = RunRullama({"synth", "--config", config, "--out", model});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string warning = "this is a base model";
  EXPECT_THAT(Run({"show", model}).out, HasSubstr("conversations  " + warning));
  EXPECT_THAT(Run({"run", model, "x", "-n", "1"}).err, HasSubstr(warning));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", model, "x", "-n", "1", "--raw"},
        {"bench", "-m", model, "-p", "4", "-n", "1"},
        {"graph", "-m", model},
        {"inspect", model}}) {
    const RunResult result = Run(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr(warning))) << command[0];
  }
}

TEST_F(StoreTest, RunTakesModelAndPromptAsWords) {
  const std::vector<std::string> rest = {"--raw", "-n", "8", "--greedy"};
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), rest.begin(), rest.end());
    return Run(words);
  };
  const RunResult with_flags = run({"-m", TinyModel(), "-p", "The prince"});
  ASSERT_EQ(with_flags.exit_code, 0) << with_flags.err;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "gemma4:tiny", "The prince"},
        {"run", "gemma4:tiny", "The", "prince"},
        {"run", "-m", TinyModel(), "The prince"},
        {"-m", "gemma4:tiny", "The prince"},
        {"run", TinyModel(), "-p", "The prince"}}) {
    const RunResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, with_flags.out);
  }
}

TEST_F(StoreTest, WordsThatDoNotFitAreExplained) {
  const RunResult prompt = Run({"run", "Why is the sky blue?"});
  EXPECT_EQ(prompt.exit_code, 2);
  EXPECT_THAT(prompt.err, HasSubstr("stands where a model is expected"));
  const RunResult twice = Run({"run", "gemma4:tiny", "-p", "a", "b"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("there are two prompts: 'b' and the one of -p"));
}

TEST_F(StoreTest, AWrongNameSuggestsWhatIsThere) {
  for (const char* name : {"gemma4:tini", "gema4:tiny"}) {
    const RunResult result = Run({"run", name, "Hi"});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_THAT(result.err, HasSubstr("did you mean 'gemma4:tiny'? the store has: "));
  }
  EXPECT_THAT(Run({"run", "gemma4", "Hi"}).err, HasSubstr("did you mean 'gemma4:"));
  const RunResult other = Run({"show", "zebra"});
  EXPECT_EQ(other.err.find("did you mean"), std::string::npos);
  EXPECT_THAT(other.err, HasSubstr("the store has: "));
}

}  // namespace
}  // namespace rullama::cli_test
