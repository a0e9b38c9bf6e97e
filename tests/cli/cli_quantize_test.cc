// rullama quantize from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/open_files.h"
#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Whether a file in the folder of temporary files has a name that begins so.
bool HasFile(const std::string& prefix) {
  return std::ranges::any_of(fs::directory_iterator(TemporaryDirectory()), [&](const auto& entry) {
    return entry.path().filename().string().starts_with(prefix);
  });
}

std::string OutputPath(const std::string& name) { return (TemporaryDirectory() / name).string(); }

// A model of the given shapes in f16.
std::string SyntheticModel(const std::string& name, const std::string& config) {
  const std::string path = OutputPath(name);
  const RunResult result =
      RunRullama({"synth", "--config", config, "--type", "F16", "--out", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return path;
}

std::string TinyConfig() { return std::string(RULLAMA_SOURCE_DIR) + "/configs/tiny.yaml"; }

// Its shapes with other values: pairs of a text in it and what takes its place.
std::string ChangedConfig(const std::string& name,
                          const std::vector<std::pair<std::string, std::string>>& changes) {
  std::string config = ReadFile(TinyConfig());
  for (const auto& [from, to] : changes) {
    const size_t at = config.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) config.replace(at, from.size(), to);
  }
  return TemporaryFile(name, config).string();
}

TEST(Quantize, EachTypeGivesAModelThatRuns) {
  const std::string source = SyntheticModel(
      "source.gguf",
      ChangedConfig("few_layers.yaml", {{"layers: 8", "layers: 4"},
                                        {"shared_kv_layers: 4", "shared_kv_layers: 0"},
                                        {"ffn: {owned: 512, shared: 1024}", "ffn: 256"}}));
  uint64_t last = fs::file_size(source);
  for (const char* type : {"Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"}) {
    const std::string path = OutputPath(std::string(type) + ".gguf");
    const RunResult result = RunRullama({"quantize", source, path, type});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(type));
    EXPECT_THAT(result.err, ::testing::ContainsRegex("[0-9.]+ MiB became [0-9.]+ MiB"));
    EXPECT_LT(fs::file_size(path), last) << type;
    last = fs::file_size(path);
    const RunResult run = RunRullama({"-m", path, "--raw", "-p", "x", "-n", "2"});
    EXPECT_EQ(run.exit_code, 0) << type << run.err;
  }
  for (const char* type :
       {"Q4_0", "Q5_0", "Q4_K_S", "Q3_K_M", "Q2_K", "IQ4_NL", "IQ4_XS", "MXFP4_MOE"}) {
    const std::string path = OutputPath(std::string(type) + ".gguf");
    ASSERT_EQ(RunRullama({"quantize", source, path, type, "--threads", "1"}).exit_code, 0) << type;
    EXPECT_EQ(RunRullama({"-m", path, "--raw", "-p", "x", "-n", "2"}).exit_code, 0) << type;
  }
}

// The towers of a small model, made and quantised. A picture of one red pixel fills any budget.
class TowersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto config = TemporaryFile("towers.yaml",
                                      "architecture:\n"
                                      "  width: 256\n"
                                      "  vision: {layers: 2, width: 64, heads: 2, ffn: 80}\n"
                                      "  audio: {layers: 1, width: 32, heads: 2, ffn: 48}\n");
    const RunResult made =
        RunRullama({"synth", "--config", config.string(), "--mmproj-out", source_});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  // The soft tokens of the picture.
  static std::vector<float> Encode(const std::string& towers) {
    const std::string pixel(
        "GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;",
        35);
    const auto picture = TemporaryFile("red.gif", pixel);
    const std::string out = OutputPath("soft.f32");
    const RunResult run = RunRullama({"encode", "-m", TinyModel(), "--mmproj", towers, "--image",
                                      picture.string(), "--image-tokens", "70", "--out", out});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const std::string bytes = ReadFile(out);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
  const std::string source_ = OutputPath("towers.gguf");
};

TEST_F(TowersTest, QuantisedTowersGiveAlmostTheSameTokens) {
  const std::string small = OutputPath("towers_q8.gguf");
  const RunResult result = RunRullama({"quantize", source_, small, "q8_0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // ffn_down of the image tower has rows of 80, which are not a multiple of 32.
  EXPECT_THAT(result.err, HasSubstr("of type Q8_0: "));
  EXPECT_THAT(result.err, HasSubstr("convolutions always"));
  EXPECT_LT(fs::file_size(small), fs::file_size(source_));
  const std::vector<float> expected = Encode(source_);
  const std::vector<float> found = Encode(small);
  ASSERT_EQ(expected.size(), 64u * 256);
  ASSERT_EQ(found.size(), expected.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += std::pow(double{found[i]} - expected[i], 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / norm), 0.03);
}

TEST_F(TowersTest, InspectCountsTheirWork) {
  const RunResult result = RunRullama({"inspect", source_, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto towers = nlohmann::json::parse(result.out).at("towers");
  EXPECT_EQ(towers.at("picture").at("projector"), "gemma4v");
  EXPECT_EQ(towers.at("sound").at("layers"), 1);
  const auto& cost = towers.at("picture").at("costs").at(0);
  EXPECT_EQ(cost.at("tokens"), 70);
  constexpr double kPatches = 70 * 9;
  constexpr double kLayer = 4 * 64 * 64 + 3 * 64 * 80 + 2 * kPatches * 64;
  constexpr double kMultiplyAdds = kPatches * (768 * 64 + 2 * kLayer) + 70 * 64 * 256;
  EXPECT_NEAR(cost.at("tflop").get<double>(), 2 * kMultiplyAdds / 1e12, 1e-9);
}

TEST_F(TowersTest, WrongUseIsExplained) {
  const std::string never = OutputPath("never.gguf");
  const RunResult nothing = RunRullama({"synth", "--config", TinyConfig()});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("--mmproj-out"));
  const RunResult none = RunRullama({"synth", "--config", TinyConfig(), "--mmproj-out", never});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("architecture.vision.layers"));
  const std::string gemma3 = std::string(RULLAMA_SOURCE_DIR) + "/configs/gemma3-270m.yaml";
  const RunResult text = RunRullama({"synth", "--config", gemma3, "--mmproj-out", never});
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_THAT(text.err, HasSubstr("architecture.vision.layers"));
  EXPECT_FALSE(HasFile("never") || HasFile(".never"));
}

TEST(Quantize, WrongUseIsExplained) {
  const std::string source = SyntheticModel("wrong_use.gguf", TinyConfig());
  const std::string path = OutputPath("never.gguf");
  const RunResult type = RunRullama({"quantize", source, path, "Q4_K_X"});
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_THAT(type.err, HasSubstr("Q4_K_M"));
  const RunResult same = RunRullama({"quantize", source, source, "Q8_0"});
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_THAT(same.err, HasSubstr("[io.same_file]"));
  EXPECT_EQ(RunRullama({"quantize", source, path}).exit_code, 2);
  EXPECT_EQ(RunRullama({"quantize", "/no/such/model.gguf", path, "Q8_0"}).exit_code, 6);
  EXPECT_EQ(RunRullama({"quantize", source, "/no/such/folder/x.gguf", "Q8_0"}).exit_code, 6);
  EXPECT_FALSE(HasFile("never") || HasFile(".never"));
}

TEST(Quantize, TellsErrorsAndTakesAnImportanceMatrix) {
  const std::string source = SyntheticModel("importance.gguf", TinyConfig());
  const std::string path = OutputPath("weighted.gguf");
  const std::string name = "blk.0.ffn_up.weight";
  const std::vector<float> columns(256, 1.0F);
  std::string matrix;
  for (const size_t number : {size_t{1}, name.size()}) {
    matrix.append(reinterpret_cast<const char*>(&number), 4);
  }
  matrix += name;
  for (const size_t number : {size_t{1}, columns.size()}) {
    matrix.append(reinterpret_cast<const char*>(&number), 4);
  }
  matrix.append(reinterpret_cast<const char*>(columns.data()), columns.size() * sizeof(float));
  const std::string file = TemporaryFile("imatrix.dat", matrix).string();
  const RunResult result = RunRullama({"quantize", source, path, "Q4_0", "--imatrix", file, "-v"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("blk.0.ffn_up.weight as q4_0: relative error 0."));
  EXPECT_THAT(result.err, HasSubstr("the importance matrix says nothing about"));
  const RunResult other = RunRullama({"quantize", source, path, "Q4_0", "--imatrix", source});
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_THAT(other.err, HasSubstr("[imatrix.file]"));
  EXPECT_EQ(RunRullama({"quantize", source, path, "--copy", "--imatrix", file}).exit_code, 2);
}

TEST(Quantize, AMeasuredImportanceMatrixIsTaken) {
  const std::string source = SyntheticModel("measured.gguf", TinyConfig());
  const std::string matrix = OutputPath("imatrix.gguf");
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The answer is " + std::to_string(i * i) + ". ";
  const std::string file = TemporaryFile("text.txt", text).string();
  const RunResult made =
      RunRullama({"imatrix", "-m", source, "-f", file, "-o", matrix, "-c", "32", "--chunks", "3"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr(" over 3 chunks of 32 tokens"));
  // All but the table of tokens, which is looked up and, in this measurement, not multiplied.
  const std::string path = OutputPath("weighted.gguf");
  const RunResult taken = RunRullama({"quantize", source, path, "Q4_0", "--imatrix", matrix});
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  EXPECT_EQ(RunRullama({"-m", path, "--raw", "-p", "x", "-n", "2"}).exit_code, 0);
  const RunResult again = RunRullama({"imatrix", "-m", source, "-f", file, "-o", source});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("[io.same_file]"));
  const std::string few = TemporaryFile("few.txt", "x").string();
  const RunResult none = RunRullama({"imatrix", "-m", source, "-f", few, "-o", matrix});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("[imatrix.text]"));
}

// The shapes of a tensor of a file, in numpy's order.
std::vector<uint64_t> DimsOf(const nlohmann::json& file, const std::string& name) {
  for (const nlohmann::json& tensor : file["tensors"]) {
    if (tensor["name"] == name) return tensor["dims"].get<std::vector<uint64_t>>();
  }
  return {};
}

TEST(Quantize, AMeasuredImportanceMatrixHasColumnsForEachExpert) {
  const std::string source = SyntheticModel(
      "experts.gguf",
      ChangedConfig("experts.yaml", {{"ffn: {owned: 512, shared: 1024}",
                                      "ffn: 480\n  experts: {count: 8, used: 2, ffn: 160}\n  #"},
                                     {"shared_kv_layers: 4", "shared_kv_layers: 0"},
                                     {"ple_dim: 256", "ple_dim: 0"}}));
  const std::string matrix = OutputPath("experts-imatrix.gguf");
  const std::string file =
      TemporaryFile("experts.txt", "The answer is 42, and so is the question. Who is the prince?");
  const RunResult few =
      RunRullama({"imatrix", "-m", source, "-f", file, "-o", matrix, "-c", "4", "--chunks", "1"});
  ASSERT_EQ(few.exit_code, 0) << few.err;
  EXPECT_THAT(few.err, HasSubstr("matrices of experts, whose columns will all count the same"));
  const auto found = nlohmann::json::parse(RunRullama({"inspect", matrix, "--json"}).out);
  const std::string down = "blk.0.ffn_down_exps.weight", up = "blk.0.ffn_gate_up_exps.weight";
  EXPECT_EQ(DimsOf(found, down + ".in_sum2"), (std::vector<uint64_t>{8, 160}));
  EXPECT_EQ(DimsOf(found, down + ".counts"), (std::vector<uint64_t>{8, 1}));
  EXPECT_EQ(DimsOf(found, up + ".in_sum2"), (std::vector<uint64_t>{8, 256}));
  EXPECT_EQ(DimsOf(found, "blk.0.attn_q.weight.counts"), (std::vector<uint64_t>{1, 1}));
  const std::string path = OutputPath("experts-q4.gguf");
  const RunResult taken = RunRullama({"quantize", source, path, "Q4_0", "--imatrix", matrix});
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  EXPECT_THAT(taken.err, HasSubstr("never reached"));
  EXPECT_EQ(RunRullama({"-m", path, "--raw", "-p", "x", "-n", "2"}).exit_code, 0);
}

TEST(Quantize, QuantisedModelsAreRefused) {
  const std::string source = SyntheticModel("twice.gguf", TinyConfig());
  const std::string once = OutputPath("once.gguf");
  ASSERT_EQ(RunRullama({"quantize", source, once, "Q8_0"}).exit_code, 0);
  const RunResult twice = RunRullama({"quantize", once, OutputPath("never.gguf"), "Q4_0"});
  EXPECT_EQ(twice.exit_code, 4);
  EXPECT_THAT(twice.err, HasSubstr("[quantize.source_type]"));
  EXPECT_FALSE(HasFile("never") || HasFile(".never"));
}

// The layer is wide enough to take a second; the interrupt comes once the temporary file is there.
TEST(Quantize, InterruptLeavesNothing) {
  const std::string source =
      SyntheticModel("wide.gguf", ChangedConfig("wide.yaml", {{"owned: 512", "owned: 16384"}}));
  RunningProgram program({"quantize", source, OutputPath("stopped.gguf"), "Q4_K_M"});
  // The temporary file has a name only if the file system has no unnamed files.
  WaitUntil([] { return HasFile(".stopped") || HasUnnamedFile(TemporaryDirectory()); });
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_FALSE(HasFile("stopped") || HasFile(".stopped"));
}

// A limit on the size of files, inherited by the program, fails a write as a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_ = {};
  sighandler_t handler_ = SIG_DFL;
};

TEST(Quantize, AWriteThatFailsLeavesNothing) {
  const std::string source = SyntheticModel("full.gguf", TinyConfig());
  RunResult result;
  {
    const FileSizeLimit limit(1 << 20);
    result = RunRullama({"quantize", source, OutputPath("too_large.gguf"), "Q8_0"});
  }
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[io."));
  EXPECT_FALSE(HasFile("too_large") || HasFile(".too_large"));
}

}  // namespace
}  // namespace rullama::cli_test
