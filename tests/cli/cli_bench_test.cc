// rullama bench from outside: a table that stands alone, and the same as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tests/cli/program.h"
#include "tests/cli/trace_rules.h"

namespace rullama::cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> BenchArguments(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", "-m", TinyModel(), "-p", "8", "-n",
                                        "4",     "-r", "2",         "-t", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Bench, TableNamesModelBackendThreadsAndBuild) {
  const std::filesystem::path plot = std::filesystem::path(::testing::TempDir()) / "bench.svg";
  const RunResult result = RunRullama(BenchArguments({"--plot", plot.string()}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"| model ", "| threads |", "tiny-e2b-Q4_K_M.gguf Q4_K_M |", "| cpu ",
                           " pp8 |", " tg4 |", "\ndevice: ", "\nbuild: rullama "}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  const std::string svg = ReadFile(plot);
  EXPECT_THAT(svg, HasSubstr("tiny-e2b-Q4_K_M.gguf Q4_K_M on cpu"));
  EXPECT_THAT(svg, HasSubstr("<title>pp8: "));
  EXPECT_THAT(svg, HasSubstr("<title>tg4: "));
}

TEST(Bench, SeveralNumbersOfThreadsAreRowsOfOneTable) {
  const std::filesystem::path plot = std::filesystem::path(::testing::TempDir()) / "threads.svg";
  const RunResult result = RunRullama({"bench", "-m", TinyModel(), "-p", "8", "-n", "0", "-r", "1",
                                       "-t", "1,2", "--plot", plot.string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* row : {" 1 |            pp8 |", " 2 |            pp8 |"}) {
    EXPECT_THAT(result.out, HasSubstr(row));
  }
  const size_t head = result.out.find("| threads |");
  ASSERT_NE(head, std::string::npos);
  EXPECT_EQ(result.out.find("| threads |", head + 1), std::string::npos) << "one table";
  const std::string svg = ReadFile(plot);
  EXPECT_THAT(svg, HasSubstr("<title>pp8, 1 thread: "));
  EXPECT_THAT(svg, HasSubstr("<title>pp8, 2 threads: "));

  EXPECT_THAT(RunRullama(BenchArguments({"-t", "1,x"})).err, HasSubstr("--threads"));
  EXPECT_NE(RunRullama(BenchArguments({"-t", "1,0"})).exit_code, 0);
}

TEST(Bench, JsonHasTheSameFields) {
  const RunResult result = RunRullama(BenchArguments({"--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json record = json::parse(result.out.substr(0, result.out.find('\n')));
  EXPECT_EQ(record["model"], "tiny-e2b-Q4_K_M.gguf");
  EXPECT_EQ(record["quantization"], "Q4_K_M");
  EXPECT_EQ(record["backend"], "cpu");
  EXPECT_EQ(record["threads"], 1);
  EXPECT_GT(record["parameters"].get<uint64_t>(), 1'000'000u);
  EXPECT_GT(record["model_bytes"].get<uint64_t>(), 1'000'000u);
  EXPECT_THAT(record["driver"].get<std::string>(), HasSubstr("kernels for"));
  const RunResult version = RunRullama({"--version"});
  EXPECT_THAT(version.out, HasSubstr(record["version"].get<std::string>()));
  EXPECT_TRUE(record.contains("commit"));
}

TEST(Bench, PicturesNeedATower) {
  EXPECT_THAT(RunRullama(BenchArguments({"--image-tokens", "280"})).err,
              HasSubstr("[media.unsupported]"));
}

TEST(Bench, TraceHasEveryStepItsSegmentsAndTheirOps) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / "bench_trace.json";
  std::filesystem::remove(file);
  const RunResult result =
      RunRullama(BenchArguments({"--trace", file.string(), "--trace-ops", "-t", "2"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::ifstream stream(file);
  const json trace = json::parse(stream);
  EXPECT_EQ(TraceFault(trace), "");
  std::map<std::string, int> spans;  // by category
  double ended = 0;                  // the last segment
  double busy = 0;                   // the time of ops
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++spans[event["cat"]];
    if (event["cat"] == "op") busy += event["dur"].get<double>();
    if (event["cat"] != "segment") continue;
    EXPECT_GE(event["ts"].get<double>(), ended) << "segments take turns";
    ended = event["ts"].get<double>() + event["dur"].get<double>();
  }
  // A warm-up and two repetitions of one step of 8 rows and four of one.
  EXPECT_EQ(spans["step"], 15);
  EXPECT_EQ(spans["segment"], 15);
  EXPECT_EQ(spans["inputs"], 15);
  EXPECT_EQ(spans["read"], 15);
  EXPECT_EQ(spans["compile"], 2);
  EXPECT_GT(spans["op"], 15 * 10) << "each layer alone has more ops";
  EXPECT_GT(busy, 0);
  std::filesystem::remove(file);
}

TEST(TraceRules, FaultsAreFound) {
  const std::string head =
      R"({"displayTimeUnit": "ms", "traceEvents": [
          {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "p"}},
          {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "t"}},
          {"ph": "X", "name": "outer", "pid": 1, "tid": 1, "ts": 0, "dur": 10})";
  const auto fault = [&head](const std::string& event) {
    return TraceFault(json::parse(head + event + "]}"));
  };
  EXPECT_EQ(fault(""), "");
  EXPECT_EQ(fault(R"(, {"ph": "X", "name": "inner", "pid": 1, "tid": 1, "ts": 5, "dur": 5})"), "");
  EXPECT_EQ(fault(R"(, {"ph": "X", "name": "late", "pid": 1, "tid": 1, "ts": 5, "dur": 6})"),
            "late begins within outer and ends after it");
  EXPECT_THAT(fault(R"(, {"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": 5, "dur": 6})"),
              HasSubstr("without a name"));
  EXPECT_THAT(fault(R"(, {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 5, "dur": -1})"),
              HasSubstr("ends before"));
  EXPECT_THAT(fault(R"(, {"ph": "b", "name": "a", "cat": "c", "id2": {"local": "1"}, )"
                    R"("pid": 1, "tid": 1, "ts": 5})"),
              HasSubstr("not ended: a"));
  EXPECT_THAT(fault(R"(, {"ph": "e", "name": "a", "cat": "c", "id2": {"local": "1"}, )"
                    R"("pid": 1, "tid": 1, "ts": 5})"),
              HasSubstr("has not begun"));
  EXPECT_THAT(fault(R"(, {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": "0"})"),
              HasSubstr("no time"));
}

class ProfileTest : public ::testing::Test {
 protected:
  static std::vector<std::string> Arguments(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"profile", "-m", TinyModel(), "-p", "8",
                                          "-n",      "3",  "-t",        "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "profile";
};

TEST_F(ProfileTest, PageHasTheRunBefore) {
  const std::filesystem::path before = folder_ / "before.json", page = folder_ / "profile.html";
  const RunResult first = RunRullama(Arguments({"--json", "--no-peaks"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  std::ofstream(before) << first.out;
  const RunResult second =
      RunRullama(Arguments({"--no-peaks", "--against", before.string(), "--html", page.string()}));
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("before: tiny-e2b-Q4_K_M.gguf on cpu, rullama "));
  const std::string html = ReadFile(page);
  EXPECT_THAT(html, HasSubstr(", 1 thread; medians of 5 runs"));
  EXPECT_THAT(html, HasSubstr("Compared with the earlier run"));

  const RunResult other = RunRullama({"profile", "-m", TinyModel(), "-p", "9", "-n", "3",
                                      "--no-peaks", "--against", before.string()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("has no test pp9, but: pp8, tg3"));
  const RunResult wrong = RunRullama(Arguments({"--against", TinyModel()}));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("[profile.file]"));
}

TEST_F(ProfileTest, PageHasRooflines) {
  const std::filesystem::path page = folder_ / "profile.html";
  const RunResult result = RunRullama(Arguments({"-r", "1", "--html", page.string()}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("peaks of cpu: "));
  const std::string html = ReadFile(page);
  EXPECT_THAT(html, HasSubstr("Roofline of cpu, pp8"));
  EXPECT_THAT(html, HasSubstr("Roofline of cpu, tg3"));
}

TEST_F(ProfileTest, OpsOfBothTestsFillTheirTime) {
  const RunResult result = RunRullama(Arguments({"--json", "--no-peaks", "-r", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  for (const auto& [test, steps] : {std::pair("pp8", 1), std::pair("tg3", 3)}) {
    ASSERT_TRUE(std::getline(lines, line));
    const json profile = json::parse(line);
    EXPECT_EQ(profile["test"], test);
    EXPECT_EQ(profile["threads"], "1");
    EXPECT_THAT(profile["device"].get<std::string>(), HasSubstr("(kernels for "));
    EXPECT_EQ(profile["steps"], steps);
    EXPECT_GT(profile["op_seconds"].get<double>(), 0);
    EXPECT_LE(profile["op_seconds"].get<double>(), profile["seconds"].get<double>());
    double sum = 0;
    for (const json& op : profile["ops"]) {
      sum += op["seconds"].get<double>();
      EXPECT_EQ(op["executions"], steps) << op;
      EXPECT_GT(op["bytes"].get<double>(), 0) << op;
    }
    EXPECT_NEAR(sum, profile["op_seconds"].get<double>(), 1e-9);
  }
  EXPECT_FALSE(std::getline(lines, line));
}

class EncoderProfileTest : public ProfileTest {
 protected:
  void SetUp() override {
    ProfileTest::SetUp();
    const std::filesystem::path config = folder_ / "tiny.yaml";
    std::ofstream(config)
        << "architecture: {family: gemma-embedding, layers: 2, width: 64, heads: 2, "
           "kv_heads: 1, head_dim: 32, ffn: 96, sliding_window: 16, pattern: 2, "
           "vocabulary: 2048, context_length: 128, rms_eps: 0.000001, "
           "rope: {base_global: 1000000, base_sliding: 10000}}\n";
    const RunResult synth =
        RunRullama({"synth", "--config", config.string(), "--type", "Q8_0", "--out", model()});
    ASSERT_EQ(synth.exit_code, 0) << synth.err;
  }
  [[nodiscard]] std::string model() const { return (folder_ / "tiny.gguf").string(); }
  [[nodiscard]] RunResult Profile(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"profile", "-m", model(),  "-t",        "1",
                                          "-r",      "1",  "--json", "--no-peaks"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunRullama(arguments);
  }
};

TEST_F(EncoderProfileTest, ATextIsReadAndTheDenseLayersFollow) {
  const RunResult result = Profile({"-p", "40"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  for (const auto& [test, value] :
       {std::pair("pp40", "blk.1.attn"), std::pair("dense", "dense_2")}) {
    ASSERT_TRUE(std::getline(lines, line));
    const json profile = json::parse(line);
    EXPECT_EQ(profile["test"], test);
    EXPECT_EQ(profile["steps"], 1);
    EXPECT_TRUE(std::ranges::any_of(profile["ops"], [value = std::string(value)](const json& op) {
      return op["value"].get<std::string>().starts_with(value);
    })) << line.substr(0, 500);
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(EncoderProfileTest, NoTokensAreGenerated) {
  const RunResult result = Profile({"-p", "40", "-n", "3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("[model.encoder]"));
}

TEST_F(EncoderProfileTest, ATextIsNoLongerThanTheContext) {
  const RunResult fits = Profile({"-p", "64", "-c", "64"});
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  const RunResult longest = Profile({"-p", "128"});
  EXPECT_EQ(longest.exit_code, 0) << longest.err << "no room for tokens to generate is needed";
  const RunResult result = Profile({"-p", "65", "-c", "64"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("[context.overflow]"));
}

TEST(Bench, TraceDoesNotReplaceTheModel) {
  const RunResult result = RunRullama(BenchArguments({"--trace", TinyModel()}));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("io.same_file"));
  const RunResult run = RunRullama({"run", "-m", TinyModel(), "-p", "a", "--trace", TinyModel()});
  EXPECT_THAT(run.err, HasSubstr("io.same_file"));
}

}  // namespace
}  // namespace rullama::cli_test
