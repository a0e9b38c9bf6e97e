// `rullama finetune` from outside: the adapter that it writes is what `run` answers with, a run
// that goes on is the run that did not stop, and mistakes are errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string TrainedModel() {
  return std::string(RULLAMA_SOURCE_DIR) + "/tests/data/tiny-e2b-Q4_K_M.gguf";
}

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

class FinetuneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "data.jsonl")
        << R"({"prompt":"Who is Pierre?","completion":"A count."})"
        << "\n"
        << R"({"prompt":"Who is Andrew?","completion":"A prince."})"
        << "\n"
        << R"({"prompt":"Who is Natasha?","completion":"A daughter."})"
        << "\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  RunResult Finetune(const std::string& output, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"finetune",
                                          "-m",
                                          TrainedModel(),
                                          "--data",
                                          (folder_ / "data.jsonl").string(),
                                          "-o",
                                          (folder_ / output).string(),
                                          "--batch-size",
                                          "3",
                                          "--rank",
                                          "8",
                                          "--lr",
                                          "0.004",
                                          "--threads",
                                          "2",
                                          "--lr-schedule",
                                          "constant",
                                          "--warmup",
                                          "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunRullama(arguments);
  }

  const fs::path folder_ = TemporaryDirectory() / "finetune";
};

TEST_F(FinetuneTest, TheModelAnswersWithWhatItLearnt) {
  const RunResult result = Finetune("adapter", {"--iters", "25", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  nlohmann::json last;
  while (std::getline(lines, line)) last = nlohmann::json::parse(line);
  EXPECT_EQ(last.at("type"), "final");
  EXPECT_EQ(last.at("step"), 25);
  EXPECT_LT(last.at("loss"), 0.1);
  for (const char* adapter : {"adapter", "adapter/adapter.gguf"}) {
    const RunResult answer =
        RunRullama({"-m", TrainedModel(), "--lora", (folder_ / adapter).string(), "-p",
                    "Who is Andrew?", "-n", "12", "--greedy"});
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("A prince.")) << adapter;
  }
}

TEST_F(FinetuneTest, ARunThatGoesOnIsTheRunThatDidNotStop) {
  ASSERT_EQ(Finetune("whole", {"--iters", "5", "--save-every", "3"}).exit_code, 0);
  const RunResult rest =
      Finetune("rest", {"--iters", "5", "--resume", (folder_ / "whole/0000003").string()});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  for (const char* file : {"adapter_model.safetensors", "0000005/training_state.safetensors",
                           "0000005/training_state.json", "adapter.gguf"}) {
    EXPECT_EQ(ReadAll(folder_ / "whole" / file), ReadAll(folder_ / "rest" / file)) << file;
  }
  const RunResult other = Finetune(
      "other", {"--iters", "5", "--seed", "1", "--resume", (folder_ / "whole/0000003").string()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("has seed = 0, this run has 1"));
}

TEST_F(FinetuneTest, ComputingActivationsAgainChangesNoByte) {
  ASSERT_EQ(Finetune("kept", {"--iters", "2", "--no-grad-checkpoint"}).exit_code, 0);
  ASSERT_EQ(Finetune("again", {"--iters", "2", "--grad-checkpoint"}).exit_code, 0);
  EXPECT_EQ(ReadAll(folder_ / "kept/adapter_model.safetensors"),
            ReadAll(folder_ / "again/adapter_model.safetensors"));
}

TEST_F(FinetuneTest, MistakesAreErrors) {
  const auto expect = [&](const std::vector<std::string>& more, int code, const char* text) {
    const RunResult result = Finetune("wrong", more);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  expect({"--iters", "2", "--epochs", "2"}, 2, "[train.option]");
  expect({"--lora-targets", "attn,nose"}, 2, "training.targets has 'nose'");
  expect({"--num-layers", "99"}, 2, "training.num_layers is 99");
  expect({"--rank", "100"}, 2, "training.rank is 100, expected at most 64");
  expect({"--rank", "0"}, 2, "training.rank");
  expect({"--data", "/nowhere.jsonl"}, 6, "/nowhere.jsonl");
  std::ofstream(folder_ / "bad.jsonl") << "{\n";
  expect({"--data", (folder_ / "bad.jsonl").string()}, 2, "bad.jsonl', line 1: found no JSON");
  EXPECT_FALSE(fs::exists(folder_ / "wrong"));
}

}  // namespace
}  // namespace rullama::cli_test
