// rullama diff: what it prints, its exit codes, and that --bisect names the op that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/program.h"
#include "tests/cli/trace_rules.h"

namespace rullama::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kAboveThreshold = 7;

// A hundredth off in one op of many moves the logits little.
constexpr const char* kStrict = "diff:\n  nmse: 1.0e-7\n  kl: 1.0e-7\n";

// faulty against the reference on the tiny model, with the results of these ops off by factors:
// "name:factor[,...]".
RunResult DiffFaulty(const std::string& faults, const std::vector<std::string>& more = {}) {
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
  if (!faults.empty()) options.environment.push_back("RULLAMA_FAULT=" + faults);
  return RunRullama(arguments, options);
}

RunResult DiffFaultyStrictly(const std::string& faults, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--config", TemporaryFile("strict.yaml", kStrict)});
  return DiffFaulty(faults, more);
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
  // One of each kind of op whose factor no norm takes out again.
  struct {
    const char* op;
    const char* kind;
  } constexpr kFaults[] = {
      {"embd", "affine"},
      {"blk.0.attn.q", "rope"},
      {"blk.2.ffn.norm", "rms_norm"},
      {"blk.4.attn.residual", "residual_norm"},
      {"output.project", "matmul"},
      {"logits", "softcap"},
  };
  for (const auto& [op, kind] : kFaults) {
    const RunResult result = DiffFaultyStrictly(std::string(op) + ":1.01", {"--bisect"});
    EXPECT_EQ(result.exit_code, kAboveThreshold) << result.err;
    EXPECT_THAT(result.out, HasSubstr(std::string("caused by: ") + op + " (" + kind + ")\n"));
  }
}

TEST(Diff, BisectNamesTheFirstOfSeveral) {
  const RunResult result = DiffFaultyStrictly("logits:1.01,blk.5.attn.q:1.01,blk.2.ffn.norm:1.01",
                                              {"--bisect", "--level", "logits", "--json"});
  EXPECT_EQ(result.exit_code, kAboveThreshold) << result.err;
  const auto culprit = nlohmann::json::parse(result.out)["culprit"];
  EXPECT_EQ(culprit["op"], "blk.2.ffn.norm");
  EXPECT_EQ(culprit["kind"], "rms_norm");
  EXPECT_EQ(culprit["alone"], false);
  const RunResult text =
      DiffFaultyStrictly("logits:1.01,blk.2.ffn.norm:1.01", {"--bisect", "--level", "logits"});
  EXPECT_THAT(text.out, HasSubstr("caused by: blk.2.ffn.norm (rms_norm), the first of several"));
}

TEST(Diff, BisectNamesAKindThatIsWrongThroughout) {
  std::string faults;
  for (int layer = 0; layer < 8; ++layer) {
    faults += (layer == 0 ? "" : ",") + ("blk." + std::to_string(layer) + ".attn.q:1.01");
  }
  const RunResult result = DiffFaultyStrictly(faults, {"--bisect", "--level", "logits"});
  EXPECT_EQ(result.exit_code, kAboveThreshold) << result.err;
  EXPECT_THAT(result.out,
              ::testing::ContainsRegex("caused by: blk.0.attn.q .rope., the first of [0-9]+ rope "
                                       "ops: with all of them on reference"));
}

// The norm after it divides by the factor: the value is off, the logits are not.
TEST(Diff, BisectHasNoCauseForWhatANormTakesOut) {
  const std::string fault = "blk.3.attn.out:1.01";
  const RunResult op = DiffFaultyStrictly(fault, {"--level", "op", "--bisect"});
  EXPECT_EQ(op.exit_code, kAboveThreshold) << op.err;
  EXPECT_THAT(op.out, HasSubstr("first above: blk.3.attn.out\n"));
  EXPECT_THAT(op.out, HasSubstr("caused by: no single op"));
  EXPECT_THAT(op.out, HasSubstr("the first value above its threshold is that of blk.3.attn.out "
                                "(matmul)\n"));
  EXPECT_EQ(DiffFaultyStrictly(fault, {"--level", "logits"}).exit_code, 0);
  const RunResult layer = DiffFaultyStrictly("blk.7.out:1.01", {"--bisect", "--json"});
  EXPECT_EQ(layer.exit_code, kAboveThreshold) << layer.err;
  EXPECT_EQ(nlohmann::json::parse(layer.out)["first_op"]["op"], "blk.7.out");
}

TEST(Diff, FirstValueAboveIsThatOfTheFaultyOp) {
  const RunResult result = DiffFaultyStrictly("blk.3.ffn.down:1.01", {"--level", "op", "--json"});
  ASSERT_EQ(result.exit_code, kAboveThreshold) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report["baseline"], "reference");
  std::string first;
  for (const auto& value : report["values"]) {
    if (first.empty() && value["above"].get<bool>()) first = value["name"];
  }
  EXPECT_EQ(first, "blk.3.ffn.down");
}

TEST(Diff, FaultBelowTheThresholdIsNone) {
  const RunResult result = DiffFaulty("blk.2.ffn.norm:1.0001", {"--level", "op", "--bisect"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("faulty: blk.2.ffn.norm times 1.0001"));
  EXPECT_THAT(result.out, Not(HasSubstr("caused by")));
}

TEST(Diff, ThresholdsComeFromTheConfiguration) {
  const auto config = TemporaryFile("strict.yaml", "diff:\n  nmse: 0\n");
  const RunResult result = RunRullama({"diff", "--config", config, "-m", TinyModel(), "--backends",
                                       "cpu,reference", "-p", "The prince"});
  EXPECT_EQ(result.exit_code, kAboveThreshold);
  EXPECT_THAT(result.out, HasSubstr("first above: blk.0.out"));
}

TEST(Diff, SaysWhichThresholdWasExceeded) {
  const RunResult kl = DiffFaultyStrictly("logits:1.01", {"--level", "logits"});
  EXPECT_THAT(kl.out, HasSubstr("faulty against reference; thresholds: NMSE 1e-07, KL 1e-07 nats, "
                                "same best token 95 %\n"));
  EXPECT_THAT(kl.out, HasSubstr(" nats ABOVE 1e-07 (largest"));
  EXPECT_THAT(kl.out, Not(HasSubstr("BELOW")));
  const std::string loose = "diff:\n  nmse: 1\n  kl: 100\n  top1: 1.0\n";
  const RunResult top1 =
      DiffFaulty("embd:3", {"--level", "logits", "--config", TemporaryFile("loose.yaml", loose)});
  EXPECT_EQ(top1.exit_code, kAboveThreshold) << top1.out << top1.err;
  EXPECT_THAT(top1.out, Not(HasSubstr("ABOVE")));
  EXPECT_THAT(top1.out, HasSubstr(" % BELOW 100 %\n"));
}

TEST(Diff, SaysWhatAShortPromptLeavesOut) {
  EXPECT_THAT(DiffFaulty("", {"--level", "logits"}).err,
              HasSubstr("tokens fit into the sliding window of "));
  std::string text;
  for (int i = 0; i < 100; ++i) text += "The prince went. ";
  const RunResult wide = RunRullama(
      {"diff", "-m", TinyModel(), "--backends", "cpu,reference", "--level", "logits", "-p", text});
  EXPECT_THAT(wide.err, Not(HasSubstr("sliding window")));
}

TEST(Diff, SaysWhatAModelOfOneHeadLeavesOut) {
  const auto notes = [](const char* seed) {
    return RunRullama(
               {"diff", "--random-model", seed, "--backends", "cpu,reference", "--level", "logits"})
        .err;
  };
  EXPECT_THAT(notes("7"), HasSubstr("has one head"));
  EXPECT_THAT(notes("115"), Not(HasSubstr("has one head")));
}

TEST(Diff, RandomModelsNeedNoFile) {
  for (const char* seed : {"0", "23", "63"}) {
    const RunResult result = RunRullama(
        {"diff", "--random-model", seed, "--backends", "cpu,reference", "--level", "op"});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    EXPECT_THAT(result.err, HasSubstr(std::string("seed ") + seed));
  }
}

// Their routers have scores that are a ten-thousandth apart: who rounds otherwise chooses
// otherwise.
TEST(Diff, CloseScoresMayChooseOtherExperts) {
  for (const char* seed : {"115", "121"}) {
    const RunResult result =
        RunRullama({"diff", "--random-model", seed, "--backends", "cpu,reference"});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  }
}

TEST(Diff, ScoresThatAreApartMayNot) {
  RunOptions options;
  options.environment.push_back("RULLAMA_FAULT=blk.4.moe.router:-1");
  const RunResult result = RunRullama({"diff", "--random-model", "115", "--plugin",
                                       RULLAMA_FAULTY_PLUGIN, "--backends", "faulty,reference"},
                                      options);
  EXPECT_EQ(result.exit_code, kAboveThreshold) << result.err;
  EXPECT_THAT(result.err, HasSubstr("reference runs again, with the choices of faulty"));
  EXPECT_THAT(result.out, HasSubstr("blk.4.moe.chosen.indices: 36 rows are chosen otherwise"));
  EXPECT_THAT(result.out, HasSubstr("reference was made to follow  ABOVE\n"));
}

TEST(Diff, BisectWorksOnRandomModels) {
  RunOptions options;
  options.environment.push_back("RULLAMA_FAULT=output.project:1.1");
  const RunResult result =
      RunRullama({"diff", "--random-model", "7", "--plugin", RULLAMA_FAULTY_PLUGIN, "--backends",
                  "faulty,reference", "--bisect"},
                 options);
  EXPECT_EQ(result.exit_code, kAboveThreshold) << result.err;
  EXPECT_THAT(result.out, HasSubstr("caused by: output.project (matmul)\n"));
}

TEST(Diff, WithoutTheReferenceTheLastIsTheBaseline) {
  const RunResult result =
      RunRullama({"diff", "--random-model", "7", "--plugin", RULLAMA_FAULTY_PLUGIN, "--backends",
                  "faulty,cpu", "--level", "logits"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the baseline is cpu"));
  EXPECT_THAT(result.out, HasSubstr("faulty against cpu"));
}

TEST(Diff, PageHasTheFirstFaultItsCauseAndAMap) {
  const std::filesystem::path page = std::filesystem::path(::testing::TempDir()) / "diff.html";
  const std::filesystem::path trace = std::filesystem::path(::testing::TempDir()) / "diff.json";
  std::filesystem::remove(page);
  std::filesystem::remove(trace);
  const RunResult result = DiffFaultyStrictly(
      "blk.2.ffn.norm:1.01", {"--level", "op", "--bisect", "--html", page.string(), "--heat",
                              "blk.2.ffn.norm", "--trace", trace.string()});
  EXPECT_EQ(result.exit_code, kAboveThreshold) << result.err;
  const std::string html = ReadFile(page);
  EXPECT_THAT(html, HasSubstr("<h3>First above its threshold: blk.2.ffn.norm</h3>"));
  EXPECT_THAT(html, HasSubstr("caused by: blk.2.ffn.norm (rms_norm)."));
  EXPECT_THAT(html, HasSubstr("Absolute error of blk.2.ffn.norm"));
  std::multiset<std::string> sessions;
  const auto written = nlohmann::json::parse(ReadFile(trace));
  EXPECT_EQ(TraceFault(written), "");
  const auto& events = written["traceEvents"];
  for (const auto& event : events) {
    if (event["name"] == "process_name") sessions.insert(event["args"]["name"]);
  }
  EXPECT_EQ(sessions.count("reference"), 1u);
  EXPECT_EQ(sessions.count("faulty"), 1u);
  EXPECT_GT(sessions.count("bisect: faulty"), 3u);
}

TEST(Diff, MapNeedsTheNameOfAComparedValue) {
  const std::filesystem::path page = std::filesystem::path(::testing::TempDir()) / "no_diff.html";
  const RunResult result = DiffFaulty("", {"--html", page.string(), "--heat", "blk.2.ffn.nrm"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("such as blk.2.ffn.norm"));
  EXPECT_THAT(result.err, HasSubstr("[diff.heat]"));
  EXPECT_FALSE(std::filesystem::exists(page));
  EXPECT_EQ(DiffFaulty("", {"--heat", "blk.2.ffn.norm"}).exit_code, 2) << "there is no page";
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
