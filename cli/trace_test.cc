// The text of a trace: valid JSON whatever the names are, each span on its track.
#include "cli/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
  TraceRecorder recorder;
  const auto start = StepSpan::Clock::now();
  StepSpan segment = Span(StepSpan::Kind::kSegment, "graph", start + microseconds(5), 20);
  segment.device = 1;
  segment.rows = 3;
  segment.ops = 7;
  recorder.OnSpan(segment);
  StepSpan copy = Span(StepSpan::Kind::kCopy, "value", start + microseconds(30), 4);
  copy.bytes = 96;
  recorder.OnSpan(copy);
  const json events = json::parse(recorder.ToJson({"first", "second"}))["traceEvents"];
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[3]["args"]["name"], "second");
  EXPECT_EQ(events[4]["tid"], events[3]["tid"]) << "a segment is on the track of its device";
  EXPECT_EQ(events[5]["tid"], events[1]["tid"]) << "a copy is on the track of the session";
  EXPECT_EQ(events[4]["name"], "segment graph");
  EXPECT_EQ(events[4]["args"], (json{{"rows", 3}, {"wanted", 0}, {"ops", 7}}));
  EXPECT_EQ(events[5]["args"], (json{{"bytes", 96}}));
  EXPECT_NEAR(events[4]["dur"].get<double>(), 20, 1e-6);
  EXPECT_NEAR(events[5]["ts"].get<double>() - events[4]["ts"].get<double>(), 25, 1e-3);
}

TEST(TraceTest, HostileNamesAreEscaped) {
  const std::string hostile = "</script>\"},{\"ph\":\"X\\\n\x01";
  TraceRecorder recorder;
  recorder.OnSpan(Span(StepSpan::Kind::kCopy, hostile, StepSpan::Clock::now(), 1));
  recorder.OnSpan(Span(StepSpan::Kind::kRead, "\xFF\xC0", StepSpan::Clock::now(), 1));
  const json events = json::parse(recorder.ToJson({hostile}))["traceEvents"];
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[2]["args"]["name"], hostile);
  EXPECT_EQ(events[3]["name"], "copy " + hostile);
  EXPECT_EQ(events[4]["name"], "read \xEF\xBF\xBD\xEF\xBF\xBD") << "invalid UTF-8 is replaced";
}

}  // namespace
}  // namespace rullama::cli
