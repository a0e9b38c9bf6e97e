// The text of a trace: valid JSON whatever the names are, each span on its track.
#include "cli/reports/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/ir/builder.h"

namespace rullama::cli {
namespace {

using nlohmann::json;
using std::chrono::microseconds;

StepSpan Span(StepSpan::Kind kind, std::string_view name, StepSpan::Clock::time_point begin,
              int64_t length) {
  StepSpan span;
  span.kind = kind;
  span.name = name;
  span.begin = begin;
  span.end = begin + microseconds(length);
  return span;
}

TEST(TraceTest, SpansKeepTheirTimesAndTracks) {
  TraceRecorder recorder(false);
  EngineObserver& session = *recorder.AddSession("model");
  const auto start = StepSpan::Clock::now();
  StepSpan segment = Span(StepSpan::Kind::kSegment, "graph", start + microseconds(5), 20);
  segment.device = 1;
  segment.device_name = "second";
  segment.rows = 3;
  segment.ops = 7;
  session.OnSpan(segment);
  StepSpan copy = Span(StepSpan::Kind::kCopy, "value", start + microseconds(30), 4);
  copy.bytes = 96;
  session.OnSpan(copy);
  const json events = json::parse(recorder.ToJson())["traceEvents"];
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["args"]["name"], "model");
  EXPECT_EQ(events[2]["args"]["name"], "second");
  EXPECT_EQ(events[3]["tid"], events[2]["tid"]) << "a segment is on the track of its device";
  EXPECT_EQ(events[4]["tid"], events[1]["tid"]) << "a copy is on the track of the session";
  EXPECT_EQ(events[3]["name"], "segment graph");
  EXPECT_EQ(events[3]["args"], (json{{"rows", 3}, {"wanted", 0}, {"ops", 7}}));
  EXPECT_EQ(events[4]["args"], (json{{"bytes", 96}}));
  EXPECT_NEAR(events[3]["dur"].get<double>(), 20, 1e-6);
  EXPECT_NEAR(events[4]["ts"].get<double>() - events[3]["ts"].get<double>(), 25, 1e-3);
}

TEST(TraceTest, SessionsAreProcesses) {
  TraceRecorder recorder(false);
  EngineObserver& first = *recorder.AddSession("first");
  EngineObserver& second = *recorder.AddSession("second");
  EXPECT_TRUE(recorder.empty());
  second.OnSpan(Span(StepSpan::Kind::kStep, "b", StepSpan::Clock::now(), 1));
  first.OnSpan(Span(StepSpan::Kind::kStep, "a", StepSpan::Clock::now(), 1));
  EXPECT_FALSE(recorder.empty());
  std::map<std::string, std::set<int>> processes;  // by the name of an event
  const json events = json::parse(recorder.ToJson())["traceEvents"];
  for (const json& event : events) {
    processes[event["name"]].insert(event["pid"].get<int>());
  }
  EXPECT_EQ(processes["process_name"], (std::set<int>{1, 2}));
  EXPECT_EQ(processes["step a"], std::set<int>{1});
  EXPECT_EQ(processes["step b"], std::set<int>{2});
}

TEST(TraceTest, RequestsHaveASlotAndATrackOfTheirOwn) {
  TraceRecorder recorder(false);
  const auto start = StepSpan::Clock::now();
  recorder.AddSession("model")->OnRequest({.number = 4,
                                           .slot = 2,
                                           .prompt_tokens = 10,
                                           .reused_tokens = 3,
                                           .drawn_tokens = 5,
                                           .submitted = start,
                                           .started = start + microseconds(2000),
                                           .first_token = start + microseconds(3000),
                                           .end = start + microseconds(7000)});
  const json events = json::parse(recorder.ToJson())["traceEvents"];
  ASSERT_EQ(events.size(), 12u);
  EXPECT_EQ(events[2]["args"]["name"], "slot 2");
  const json& slot = events[3];
  EXPECT_EQ(slot["name"], "request 4");
  EXPECT_EQ(slot["tid"], events[2]["tid"]);
  EXPECT_NEAR(slot["dur"].get<double>(), 5000, 1e-3);
  EXPECT_NEAR(slot["args"]["wait_ms"].get<double>(), 2, 1e-6);
  EXPECT_EQ(slot["args"]["drawn_tokens"], 5);
  const struct {
    const char* name;
    const char* phase;
    double time;
  } parts[] = {{"request 4", "b", 0}, {"wait", "b", 0},        {"wait", "e", 2000},
               {"read", "b", 2000},   {"read", "e", 3000},     {"write", "b", 3000},
               {"write", "e", 7000},  {"request 4", "e", 7000}};
  for (size_t i = 0; i < std::size(parts); ++i) {
    const json& event = events[4 + i];
    EXPECT_EQ(event["name"], parts[i].name);
    EXPECT_EQ(event["ph"], parts[i].phase);
    EXPECT_EQ(event["id2"], events[4]["id2"]) << "one track";
    EXPECT_NEAR(event["ts"].get<double>() - events[4]["ts"].get<double>(), parts[i].time, 1e-3);
  }
}

TEST(TraceTest, DevicesOfOneBackendAreToldApart) {
  TraceRecorder recorder(false);
  EngineObserver& session = *recorder.AddSession("model");
  StepSpan segment = Span(StepSpan::Kind::kSegment, "graph", StepSpan::Clock::now(), 1);
  for (const char* backend : {"cpu", "vulkan", "cpu"}) {
    segment.device_name = backend;
    session.OnSpan(segment);
    ++segment.device;
  }
  const json events = json::parse(recorder.ToJson())["traceEvents"];
  EXPECT_EQ(events[2]["args"]["name"], "device 0: cpu");
  EXPECT_EQ(events[3]["args"]["name"], "vulkan");
  EXPECT_EQ(events[4]["args"]["name"], "device 2: cpu");
}

// y = copy(rms_norm(x)), which a backend runs as one on two workers.
TEST(TraceTest, OpsAreOnTheTracksOfTheirWorkers) {
  GraphBuilder builder("g");
  const ValueId x = builder.Input("x", {DType::kF32, {Dim::T(), 8}});
  const ValueId norm = builder.Add(ops::RmsNorm{.x = x, .eps = 1}, "norm");
  builder.Output("y", builder.Add(ops::Copy{.x = norm}, "blk.3.y"), RowDemand::kAll);
  const auto graph = std::move(builder).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  StepRows rows;
  rows.tokens = rows.pos = rows.slot = {0, 0};

  EXPECT_FALSE(TraceRecorder(false).AddSession("model")->wants_ops());
  TraceRecorder recorder(true);
  EngineObserver& session = *recorder.AddSession("model");
  EXPECT_TRUE(session.wants_ops());
  const auto start = OpTime::Clock::now();
  const uint32_t both[] = {0, 1};
  for (uint32_t worker = 0; worker < 2; ++worker) {
    session.OnOp({*graph, rows, 1, "cpu"},
                 {both, worker, start + microseconds(worker), start + microseconds(9)});
  }
  const json events = json::parse(recorder.ToJson())["traceEvents"];
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[3]["args"]["name"], "cpu worker 0");
  EXPECT_EQ(events[4]["args"]["name"], "cpu worker 1");
  for (size_t worker = 0; worker < 2; ++worker) {
    const json& event = events[5 + worker];
    EXPECT_EQ(event["tid"], events[3 + worker]["tid"]);
    EXPECT_EQ(event["name"], "rms_norm+copy blk.3.y");
    EXPECT_EQ(event["args"]["shapes"], "f32[T,8] -> f32[T,8]");
    EXPECT_EQ(event["args"]["bytes"], 2 * 2 * 8 * 4) << "the norm stays inside";
    EXPECT_EQ(event["args"]["operations"], 2 * 8);
  }
  EXPECT_NEAR(events[6]["dur"].get<double>(), 8, 1e-3);
}

constexpr const char* kHostileTraceName = "</script>\"},{\"ph\":\"X\\\n\x01";

TEST(TraceTest, HostileNamesOfOpsAreEscaped) {
  GraphBuilder builder("g");
  const ValueId x = builder.Input("x", {DType::kF32, {Dim::T(), 8}});
  builder.Output("y", builder.Add(ops::Copy{.x = x}, kHostileTraceName), RowDemand::kAll);
  const auto graph = std::move(builder).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  StepRows rows;
  rows.tokens = rows.pos = rows.slot = {0};
  TraceRecorder recorder(true);
  const uint32_t op = 0;
  const auto now = OpTime::Clock::now();
  recorder.AddSession("model")->OnOp({*graph, rows, 0, "\xFF"}, {std::span(&op, 1), 0, now, now});
  const json events = json::parse(recorder.ToJson())["traceEvents"];
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[4]["name"], "copy " + std::string(kHostileTraceName));
  EXPECT_EQ(events[4]["args"]["bytes"], 2 * 8 * 4);
}

TEST(TraceTest, HostileNamesAreEscaped) {
  const std::string hostile = kHostileTraceName;
  TraceRecorder recorder(false);
  EngineObserver& session = *recorder.AddSession(hostile);
  session.OnSpan(Span(StepSpan::Kind::kCopy, hostile, StepSpan::Clock::now(), 1));
  session.OnSpan(Span(StepSpan::Kind::kRead, "\xFF\xC0", StepSpan::Clock::now(), 1));
  const json events = json::parse(recorder.ToJson())["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["args"]["name"], hostile);
  EXPECT_EQ(events[2]["name"], "copy " + hostile);
  EXPECT_EQ(events[3]["name"], "read \xEF\xBF\xBD\xEF\xBF\xBD") << "invalid UTF-8 is replaced";
}

class TraceFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  std::string path_ = ::testing::TempDir() + "/trace_file_test.json";
};

TEST_F(TraceFileTest, FailedCommandLeavesWhatItDid) {
  const auto trace = *TraceFile::Create({.path = path_});
  trace->AddSession("model")->OnSpan(Span(StepSpan::Kind::kStep, "a", StepSpan::Clock::now(), 1));
  const auto result =
      TraceFile::Finish(trace, MakeError(ErrorKind::kRuntime, "run.cancelled", "told to stop"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().id, "run.cancelled");
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(TraceFileTest, CommandThatFailsBeforeItsFirstStepLeavesNone) {
  const auto trace = *TraceFile::Create({.path = path_});
  ASSERT_NE(trace->AddSession("model"), nullptr);
  EXPECT_FALSE(
      TraceFile::Finish(trace, MakeError(ErrorKind::kUsage, "usage.option", "wrong option")));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TraceFileTest, WithoutAPathThereIsNone) {
  const auto trace = *TraceFile::Create({});
  EXPECT_EQ(trace, nullptr);
  EXPECT_EQ(*TraceFile::Finish(trace, 7), 7);
}

}  // namespace
}  // namespace rullama::cli
