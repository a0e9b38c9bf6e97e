// rullama diff: what it prints, its exit codes, and that --bisect names the op that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kAboveThreshold = 7;

// faulty against the reference on the tiny model, with this op off by this factor.
RunResult DiffFaulty(const std::string& fault, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"diff",
                                        "-m",
                                        TinyModel(),
                                        "--plugin",
                                        RULLAMA_FAULTY_PLUGIN,
                                        "--backends",
                                        "faulty,reference",
                                        "-p",
                                        "It was in July"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  RunOptions options;
  if (!fault.empty()) options.environment.push_back("RULLAMA_FAULT=" + fault);
  return RunRullama(arguments, options);
}

TEST(Diff, CpuIsTheReferenceWithinTheThresholds) {
  const RunResult result =
      RunRullama({"diff", "-m", TinyModel(), "--backends", "cpu,reference", "-p", "The prince"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("cpu against reference"));
  EXPECT_THAT(result.out, HasSubstr("blk.7.out"));
  EXPECT_THAT(result.out, HasSubstr("same best token 100 %"));
  EXPECT_THAT(result.out, Not(HasSubstr("ABOVE")));
}

TEST(Diff, NoFaultNoDifference) {
  const RunResult result = DiffFaulty("", {"--bisect"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the same, within the thresholds"));
  EXPECT_THAT(result.out, Not(HasSubstr("caused by")));
}

TEST(Diff, BisectNamesTheFaultyOp) {
  for (const char* op : {"blk.0.attn.mix", "blk.3.attn.mix", "blk.5.attn.mix"}) {
    const RunResult result = DiffFaulty(std::string(op) + ":5", {"--bisect"});
    EXPECT_EQ(result.exit_code, kAboveThreshold) << result.err;
    EXPECT_THAT(result.out, HasSubstr(std::string("caused by: ") + op + " (attention)"));
  }
  const RunResult cap = DiffFaulty("logits:0.5", {"--bisect", "--level", "logits"});
  EXPECT_EQ(cap.exit_code, kAboveThreshold) << cap.err;
  EXPECT_THAT(cap.out, HasSubstr("caused by: logits (softcap)"));
}

TEST(Diff, FirstValueAboveIsThatOfTheFaultyOp) {
  const RunResult result = DiffFaulty("blk.4.attn.mix:1.7", {"--level", "op", "--json"});
  EXPECT_EQ(result.exit_code, kAboveThreshold);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["baseline"], "reference");
  for (const auto& value : json["values"]) {
    if (!value["above"].get<bool>()) continue;
    EXPECT_EQ(value["name"], "blk.4.attn.mix");
    break;
  }
}

TEST(Diff, FaultBelowTheThresholdIsNone) {
  EXPECT_EQ(DiffFaulty("blk.3.attn.mix:1.0001").exit_code, 0);
}

TEST(Diff, ThresholdsComeFromTheConfiguration) {
  const auto config = TemporaryFile("strict.yaml", "diff:\n  nmse: 0\n");
  const RunResult result = RunRullama({"diff", "--config", config, "-m", TinyModel(), "--backends",
                                       "cpu,reference", "-p", "The prince"});
  EXPECT_EQ(result.exit_code, kAboveThreshold);
  EXPECT_THAT(result.out, HasSubstr("first above: blk.0.out"));
}

TEST(Diff, RandomModelsNeedNoFile) {
  for (const char* seed : {"0", "23", "63"}) {
    const RunResult result = RunRullama(
        {"diff", "--random-model", seed, "--backends", "cpu,reference", "--level", "op"});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    EXPECT_THAT(result.err, HasSubstr(std::string("seed ") + seed));
  }
}

TEST(Diff, UsageErrors) {
  const RunResult one = RunRullama({"diff", "-m", TinyModel(), "--backends", "cpu"});
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err, HasSubstr("[usage.backends]"));
  const RunResult unknown = RunRullama({"diff", "-m", TinyModel(), "--backends", "cpu,nosuch"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("nosuch"));
  const RunResult level =
      RunRullama({"diff", "-m", TinyModel(), "--backends", "cpu,reference", "--level", "all"});
  EXPECT_EQ(level.exit_code, 2);
}

}  // namespace
}  // namespace rullama::cli_test
