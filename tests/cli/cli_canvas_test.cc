// Models that denoise (DiffusionGemma), and a mixture of experts, as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kCanvas = 64;  // of the tiny model

std::vector<std::string> OnCanvas(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"-m", TinyDiffusionModel(), "--raw", "-p",
                                        "It was in July, 1805, and the speaker was"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<json> RecordsOf(const RunResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<json> records;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
  return records;
}

TEST(Canvas, PipedTextIsPlain) {
  const RunResult result = RunRullama(OnCanvas({"-n", "128", "--seed", "7"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Anna Pavlovna"));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.err, HasSubstr("128 denoised in "));
  EXPECT_EQ(result.out, RunRullama(OnCanvas({"-n", "128", "--seed", "7", "-t", "1"})).out);
}

TEST(Canvas, JsonTellsEachStep) {
  const auto records = RecordsOf(RunRullama(OnCanvas({"-n", "100", "--seed", "7", "--json"})));
  int64_t steps = 0;
  for (const json& record : records) {
    if (record["type"] != "step") continue;
    ++steps;
    EXPECT_EQ(record["entropy"].size(), kCanvas);
    EXPECT_EQ(record["ids"].size(), kCanvas);
    const auto accepted = record["accepted"].get<std::vector<bool>>();
    EXPECT_EQ(std::ranges::count(accepted, true), record["accepted_count"].get<int64_t>());
    const auto entropy = record["entropy"].get<std::vector<double>>();
    EXPECT_NEAR(std::accumulate(entropy.begin(), entropy.end(), 0.0) / kCanvas,
                record["mean_entropy"].get<double>(), 1e-5);
  }
  const json& final = records.back();
  EXPECT_EQ(final["type"], "final");
  EXPECT_EQ(final["steps"], steps);
  EXPECT_EQ(final["canvases"], 2);
  EXPECT_EQ(final["generated_tokens"], 100);
  EXPECT_EQ(final["stop_reason"], "length");
}

TEST(Canvas, SettingsReachTheSampler) {
  const auto one_step =
      RecordsOf(RunRullama(OnCanvas({"-n", "64", "--diffusion-steps", "1", "--json"})));
  EXPECT_EQ(one_step.back()["steps"], 1);
  // An endless budget accepts every row at once, none accepts the surest alone.
  const auto first_step = [](const std::string& bound) {
    return RecordsOf(RunRullama(OnCanvas({"-n", "64", "--entropy-bound", bound, "--json"})))
        .front();
  };
  EXPECT_EQ(first_step("1000000")["accepted_count"], kCanvas);
  EXPECT_EQ(first_step("0")["accepted_count"], 1);
  // A temperature that does not change.
  const auto flat =
      RecordsOf(RunRullama(OnCanvas({"-n", "64", "--t-min", "0.7", "--t-max", "0.7", "--json"})));
  for (const json& record : flat) {
    if (record["type"] != "step") continue;
    EXPECT_FLOAT_EQ(record["temperature"].get<float>(), 0.7F);
  }
}

TEST(Canvas, SeedsAndGeneratorsDecideTheNoise) {
  const auto entropies = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-n", "64", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RecordsOf(RunRullama(OnCanvas(arguments))).front()["entropy"];
  };
  const json philox = entropies({"--seed", "7"});
  EXPECT_EQ(philox, entropies({"--seed", "7", "--diffusion-random", "philox"}));
  EXPECT_NE(philox, entropies({"--seed", "8"}));
  EXPECT_NE(philox, entropies({"--seed", "7", "--diffusion-random", "xorshift64"}));
}

TEST(Canvas, BadSettingsAreRefused) {
  const auto error = [](const std::vector<std::string>& more, int exit_code) {
    const RunResult result = RunRullama(OnCanvas(more));
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error({"--diffusion-steps", "0"}, 2), HasSubstr("max_steps"));
  EXPECT_THAT(error({"--t-min", "0"}, 2), HasSubstr("t_min: expected a number above 0"));
  EXPECT_THAT(error({"--t-min", "0.9"}, 2), HasSubstr("t_max"));
  EXPECT_THAT(error({"--diffusion-random", "xorshift64", "--seed", "0"}, 2), HasSubstr("seed"));
  EXPECT_THAT(error({"-c", "32"}, 1), HasSubstr("context.overflow"));
  EXPECT_THAT(error({"-c", "70"}, 1), HasSubstr("raise --ctx-size"));
}

TEST(Canvas, AnInterruptedCanvasHasNoRate) {
  ProgramOnTerminal program(
      OnCanvas({"--seed", "7", "--diffusion-steps", "100000", "--stability-threshold", "100000"}));
  program.ExpectBytes("\x1b[2m");  // the first step is drawn
  program.Type("\x03");
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_THAT(
      program.screen().Text(),
      ::testing::ContainsRegex("prompt tokens; 0 denoised in [1-9][0-9]* steps; interrupted"));
}

TEST(Canvas, SettingsOfTheOtherKindOfModelAreNotTakenSilently) {
  const RunResult on_canvas = RunRullama(OnCanvas({"-n", "64", "--temp", "0.5", "--seed", "7"}));
  EXPECT_THAT(on_canvas.err, HasSubstr("warning: --temp has no effect: this model denoises"));
  EXPECT_THAT(on_canvas.err, Not(HasSubstr("--seed")));
  const RunResult token_by_token = RunRullama({"-m", TinyModel(), "--raw", "-p", "x", "-n", "1",
                                               "--stability-threshold", "3", "--temp", "0.5"});
  EXPECT_THAT(
      token_by_token.err,
      HasSubstr("warning: --stability-threshold has no effect: this model does not denoise"));
  EXPECT_THAT(token_by_token.err, Not(HasSubstr("--temp")));
}

TEST(Canvas, ATerminalSeesItDenoise) {
  const std::string text = RunRullama(OnCanvas({"-n", "128", "--seed", "7"})).out;
  std::vector<std::string> arguments = OnCanvas({"-n", "128", "--seed", "7"});
  const RunResult result = RunOnTerminal(arguments, 60, 24);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\x1b[2m")) << "undecided tokens are dim";
  EXPECT_THAT(result.out, HasSubstr("\x1b[J")) << "a canvas is removed before the next is drawn";
  // The last removal is followed by text that stays: the second canvas. The terminal turns line
  // ends into CR LF.
  std::string last = result.out.substr(result.out.rfind("\x1b[J") + 3);
  std::erase(last, '\r');
  EXPECT_TRUE(text.ends_with(last)) << last;
  EXPECT_GT(last.size(), 40U);

  arguments.insert(arguments.end(), {"--color", "never"});
  EXPECT_THAT(RunOnTerminal(arguments, 60, 24).out, Not(HasSubstr("\x1b")));
}

// A made-up model writes noise, but through every tensor and key that it has.
TEST(Canvas, SyntheticModelsRun) {
  const std::string config = RULLAMA_SOURCE_DIR "/configs/tiny-diffusion.yaml";
  const std::string path = (TemporaryDirectory() / "synthetic.gguf").string();
  RunResult result = RunRullama({"synth", "--config", config, "--out", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  result = RunRullama({"run", "--config", config, "-m", path, "-p", "x", "-n", "64",
                       "--diffusion-steps", "2", "--json"});
  EXPECT_EQ(RecordsOf(result).back()["steps"], 2);
}

std::string Ids(size_t count) {
  std::string list = "2";
  for (size_t i = 1; i < count; ++i) list += " " + std::to_string(300 + i * 7);
  return list;
}

class CanvasLogits : public ::testing::Test {
 protected:
  RunResult Run(const std::string& canvas, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"logits",
                                          "-m",
                                          TinyDiffusionModel(),
                                          "--tokens-file",
                                          TemporaryFile("prefix", Ids(20)).string(),
                                          "--canvas-ids",
                                          TemporaryFile("canvas", canvas).string(),
                                          "--out",
                                          out_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunRullama(arguments);
  }
  std::string out_ = (TemporaryDirectory() / "canvas.f32").string();
};

TEST_F(CanvasLogits, OfOneStepAndOfOneThatIsConditionedOnIt) {
  RunResult result = Run(Ids(kCanvas));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string first = ReadFile(out_);
  ASSERT_EQ(first.size(), kCanvas * kTinyVocabulary * sizeof(float));
  const std::string condition = TemporaryFile("condition", first).string();
  result = Run(Ids(kCanvas), {"--self-cond", condition, "--temperature", "0.8"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string second = ReadFile(out_);
  EXPECT_EQ(second.size(), first.size());
  EXPECT_NE(second, first);
  result = Run(Ids(kCanvas), {"--self-cond", condition, "--temperature", "2", "--chunk", "7"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(ReadFile(out_), second);
  result = Run(Ids(kCanvas), {"--chunk", "7"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(CanvasLogits, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(Run(Ids(kCanvas - 1)).err, HasSubstr("63 tokens, expected 64"));
  EXPECT_THAT(Run(Ids(kCanvas),
                  {"--self-cond", TemporaryFile("short", "abc").string(), "--temperature", "1"})
                  .err,
              HasSubstr("expected float32"));
  EXPECT_THAT(Run(Ids(kCanvas),
                  {"--self-cond", TemporaryFile("few", "abcd").string(), "--temperature", "1"})
                  .err,
              HasSubstr("expected [64, 2048]"));
  EXPECT_EQ(Run(Ids(kCanvas), {"--self-cond", TemporaryFile("few", "abcd").string()}).exit_code, 2);
  EXPECT_EQ(Run(Ids(kCanvas), {"--temperature", "1"}).exit_code, 2);
  EXPECT_THAT(Run("99999 " + Ids(kCanvas - 1)).err, HasSubstr("tokenizer.id"));
  EXPECT_THAT(Run(Ids(kCanvas), {"-c", "80"}).err, HasSubstr("context.overflow"));
}

TEST(Canvas, EachKindOfModelHasItsOwnLogits) {
  const std::string ids = TemporaryFile("ids", Ids(kCanvas)).string();
  const std::string out = (TemporaryDirectory() / "x.f32").string();
  RunResult result = RunRullama(
      {"logits", "-m", TinyModel(), "--tokens-file", ids, "--canvas-ids", ids, "--out", out});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("model.canvas"));
  result = RunRullama({"logits", "-m", TinyDiffusionModel(), "--tokens-file", ids, "--out", out});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--canvas-ids"));
  result = RunRullama({"perplexity", "-m", TinyDiffusionModel(), "--file", ids});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("model.canvas"));
}

TEST(Canvas, BenchMeasuresAStep) {
  const auto records = RecordsOf(RunRullama({"bench", "-m", TinyDiffusionModel(), "-p", "32", "-n",
                                             "4,8", "-d", "0,16", "-r", "2", "--json"}));
  std::vector<std::string> names;
  for (const json& record : records) {
    names.push_back(record["test"]);
    EXPECT_GT(record["median_per_s"].get<double>(), 0);
    EXPECT_GT(record["flops_per_token"].get<double>(), 1e6);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("pp32", "dn64", "pp32 @ d16", "dn64 @ d16"));
}

TEST(Canvas, BenchOfAllRowsIsForTextModels) {
  const RunResult result = RunRullama({"bench", "-m", TinyDiffusionModel(), "--all-rows"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("model.canvas"));
}

// Both quantised by `rullama quantize`; the reference computes in float64.
TEST(Diff, CpuAgreesWithTheReferenceOnModelsOfEveryKind) {
  for (const std::string& model : {TinyDiffusionModel(), TinyMoeModel()}) {
    const RunResult result =
        RunRullama({"diff", "--backends", "reference,cpu", "-m", model, "--level", "layer"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
}

}  // namespace
}  // namespace rullama::cli_test
