#include "cli/trace.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "cli/json_text.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr int kProcess = 1;
constexpr size_t kSessionTrack = 1;
constexpr size_t kFirstDeviceTrack = 2;

std::string_view NameOf(StepSpan::Kind kind) {
  switch (kind) {
    case StepSpan::Kind::kStep:
      return "step";
    case StepSpan::Kind::kCompile:
      return "compile";
    case StepSpan::Kind::kInputs:
      return "inputs";
    case StepSpan::Kind::kCopy:
      return "copy";
    case StepSpan::Kind::kSegment:
      return "segment";
    case StepSpan::Kind::kRead:
      return "read";
  }
  return "?";
}

double Microseconds(StepSpan::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Names a process or, with its number, a track.
json NameEvent(const char* what, size_t track, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", kProcess}, {"tid", track}, {"args", {{"name", name}}}};
}

json Arguments(const StepSpan& span) {
  switch (span.kind) {
    case StepSpan::Kind::kCopy:
    case StepSpan::Kind::kRead:
      return {{"bytes", span.bytes}};
    case StepSpan::Kind::kSegment:
      return {{"rows", span.rows}, {"wanted", span.wanted}, {"ops", span.ops}};
    case StepSpan::Kind::kInputs:
      return json::object();
    default:
      return {{"rows", span.rows}, {"wanted", span.wanted}};
  }
}

json SpanEvent(const StepSpan& span, const std::string& name, StepSpan::Clock::time_point start) {
  const bool on_device = span.kind == StepSpan::Kind::kSegment;
  const std::string kind(NameOf(span.kind));
  return {{"ph", "X"},
          {"name", name.empty() ? kind : kind + " " + name},
          {"cat", kind},
          {"pid", kProcess},
          {"tid", on_device ? kFirstDeviceTrack + span.device : kSessionTrack},
          {"ts", Microseconds(span.begin - start)},
          {"dur", Microseconds(span.end - span.begin)},
          {"args", Arguments(span)}};
}

}  // namespace

void TraceRecorder::OnSpan(const StepSpan& span) {
  Recorded recorded{span, std::string(span.name)};
  recorded.span.name = {};
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(recorded));
}

std::string TraceRecorder::ToJson(const std::vector<std::string>& devices) const {
  // One event per line. The text is put together event by event, because a tree of all events would
  // take many times its size.
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  text += JsonText(NameEvent("process_name", kSessionTrack, "rullama"));
  text += ",\n" + JsonText(NameEvent("thread_name", kSessionTrack, "session"));
  for (size_t i = 0; i < devices.size(); ++i) {
    text += ",\n" + JsonText(NameEvent("thread_name", kFirstDeviceTrack + i, devices[i]));
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [span, name] : spans_) text += ",\n" + JsonText(SpanEvent(span, name, start_));
  return text + "\n]}\n";
}

Result<std::unique_ptr<TraceFile>> TraceFile::Create(const std::optional<std::string>& path,
                                                     const std::string& input) {
  if (!path) return std::unique_ptr<TraceFile>();
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(*path));
  RL_RETURN_IF_ERROR(file.CheckIsNot(input));
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(file)));
}

Status TraceFile::Write(const std::vector<std::string>& devices) {
  const std::string text = recorder_.ToJson(devices);
  RL_RETURN_IF_ERROR(file_.Append(std::as_bytes(std::span(text))));
  return file_.Commit();
}

}  // namespace rullama::cli
