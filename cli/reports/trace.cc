#include "cli/reports/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <ratio>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "cli/commands/json_text.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr size_t kSessionTrack = 1;
constexpr size_t kFirstDeviceTrack = 2;
constexpr size_t kFirstSlotTrack = 1000;  // after all devices
constexpr size_t kFirstWorkerTrack = 1'000'000;
constexpr size_t kWorkersOfDevice = 10'000;  // tracks for each device

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

double Milliseconds(StepSpan::Clock::duration time) { return Microseconds(time) / 1000; }

// Names a process or, with its number, a track.
json NameEvent(const char* what, size_t process, size_t track, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", track}, {"args", {{"name", name}}}};
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

json SpanEvent(size_t process, const StepSpan& span, const std::string& name,
               StepSpan::Clock::time_point start) {
  const bool on_device = span.kind == StepSpan::Kind::kSegment;
  const std::string kind(NameOf(span.kind));
  return {{"ph", "X"},
          {"name", name.empty() ? kind : kind + " " + name},
          {"cat", kind},
          {"pid", process},
          {"tid", on_device ? kFirstDeviceTrack + span.device : kSessionTrack},
          {"ts", Microseconds(span.begin - start)},
          {"dur", Microseconds(span.end - span.begin)},
          {"args", Arguments(span)}};
}

size_t SlotTrack(int32_t slot) { return kFirstSlotTrack + static_cast<size_t>(slot); }

std::string NameOf(const RequestSpan& span) { return fmt::format("request {}", span.number); }

// The request on the track of its slot.
json SlotEvent(size_t process, const RequestSpan& span, StepSpan::Clock::time_point start) {
  return {{"ph", "X"},
          {"name", NameOf(span)},
          {"cat", "slot"},
          {"pid", process},
          {"tid", SlotTrack(span.slot)},
          {"ts", Microseconds(span.started - start)},
          {"dur", Microseconds(span.end - span.started)},
          {"args",
           {{"prompt_tokens", span.prompt_tokens},
            {"reused_tokens", span.reused_tokens},
            {"drawn_tokens", span.drawn_tokens},
            {"wait_ms", Milliseconds(span.started - span.submitted)}}}};
}

// A request, or a part of it, on the track of the request: the trace viewer makes one of all
// asynchronous events with the same process, category and id, and gives it the first one's name.
void AppendRequestPart(size_t process, const RequestSpan& span, const std::string& name,
                       StepSpan::Clock::time_point at, bool begins,
                       StepSpan::Clock::time_point start, std::string& text) {
  text += ",\n" + JsonText({{"name", name},
                            {"cat", "request"},
                            {"id2", {{"local", std::to_string(span.number)}}},
                            {"pid", process},
                            {"tid", kSessionTrack},
                            {"ph", begins ? "b" : "e"},
                            {"ts", Microseconds(at - start)}});
}

void AppendRequest(size_t process, const RequestSpan& span, StepSpan::Clock::time_point start,
                   std::string& text) {
  text += ",\n" + JsonText(SlotEvent(process, span, start));
  const auto append = [&](const std::string& name, StepSpan::Clock::time_point at, bool begins) {
    AppendRequestPart(process, span, name, at, begins, start, text);
  };
  append(NameOf(span), span.submitted, true);
  append("wait", span.submitted, true);
  append("wait", span.started, false);
  append("read", span.started, true);
  append("read", span.first_token, false);
  append("write", span.first_token, true);
  append("write", span.end, false);
  append(NameOf(span), span.end, false);
}

// The names of the tracks of devices: the backends, with the numbers of the devices where several
// have the same.
std::map<size_t, std::string> DeviceTracks(const std::map<size_t, std::string>& backends) {
  std::map<size_t, std::string> tracks;
  for (const auto& [device, backend] : backends) {
    const auto is_same = [&name = backend](const auto& other) { return other.second == name; };
    const bool alone = std::ranges::count_if(backends, is_same) == 1;
    tracks[device] = alone ? backend : fmt::format("device {}: {}", device, backend);
  }
  return tracks;
}

size_t WorkerTrack(size_t device, size_t worker) {
  return kFirstWorkerTrack + device * kWorkersOfDevice + std::min(worker, kWorkersOfDevice - 1);
}

// The members of an event that all events of a group share, as text.
std::string OpMembers(const CostedGroup& op, size_t process) {
  return fmt::format(
      R"("ph":"X","cat":"op","name":{},"args":{{"shapes":{},"bytes":{},"operations":{}}},"pid":{})",
      JsonText(op.group->kind + " " + op.group->value), JsonText(op.group->shapes), op.cost.bytes,
      op.cost.operations, process);
}

// Microseconds with three decimals, which are nanoseconds.
void AppendMicroseconds(StepSpan::Clock::duration time, std::string& text) {
  const auto nanoseconds = std::chrono::nanoseconds(time).count();
  fmt::format_to(std::back_inserter(text), "{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

// Part of an op, or all of it, on the track of a worker. There are very many of them, so they are
// put together as text.
void AppendOp(const std::string& members, size_t track, StepSpan::Clock::duration begin,
              StepSpan::Clock::duration length, std::string& text) {
  text += ",\n{";
  text += members;
  text += ",\"tid\":";
  text += fmt::format_int(track).c_str();
  text += ",\"ts\":";
  AppendMicroseconds(begin, text);
  text += ",\"dur\":";
  AppendMicroseconds(length, text);
  text += '}';
}

}  // namespace

void TraceRecorder::Session::OnOp(const SegmentRun& run, const OpTime& time) {
  const std::lock_guard lock(recorder_.mutex_);
  devices_.try_emplace(run.device, run.device_name);
  const Extents extents{std::ssize(run.rows.tokens), std::ssize(run.rows.wanted)};
  const CostedGroup& group =
      groups_.Find(run.graph, time.ops, {extents, run.rows.pos, run.rows.slot});
  ops_.push_back({.group = &group,
                  .begin = time.begin,
                  .end = time.end,
                  .device = static_cast<uint32_t>(run.device),
                  .worker = time.worker});
}

void TraceRecorder::Session::OnSpan(const StepSpan& span) {
  Recorded recorded{span, std::string(span.name)};
  recorded.span.name = recorded.span.device_name = {};
  const std::lock_guard lock(recorder_.mutex_);
  if (span.kind == StepSpan::Kind::kSegment) devices_.try_emplace(span.device, span.device_name);
  spans_.push_back(std::move(recorded));
}

void TraceRecorder::Session::OnRequest(const RequestSpan& span) {
  const std::lock_guard lock(recorder_.mutex_);
  requests_.push_back(span);
}

EngineObserver* TraceRecorder::AddSession(std::string name) {
  const std::lock_guard lock(mutex_);
  return &sessions_.emplace_back(*this, std::move(name));
}

bool TraceRecorder::empty() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(sessions_, [](const Session& session) {
    return session.spans_.empty() && session.requests_.empty();
  });
}

void TraceRecorder::AppendSession(const Session& session, size_t process, std::string& text) const {
  if (process > 1) text += ",\n";
  text += JsonText(NameEvent("process_name", process, kSessionTrack, session.name_));
  text += ",\n" + JsonText(NameEvent("thread_name", process, kSessionTrack, "session"));
  const std::map<size_t, std::string> devices = DeviceTracks(session.devices_);
  for (const auto& [index, name] : devices) {
    text += ",\n" + JsonText(NameEvent("thread_name", process, kFirstDeviceTrack + index, name));
  }
  std::set<int32_t> slots;
  for (const RequestSpan& request : session.requests_) slots.insert(request.slot);
  for (const int32_t slot : slots) {
    text += ",\n" + JsonText(NameEvent("thread_name", process, SlotTrack(slot),
                                       fmt::format("slot {}", slot)));
  }
  for (const auto& [span, name] : session.spans_) {
    text += ",\n" + JsonText(SpanEvent(process, span, name, start_));
  }
  std::set<std::pair<size_t, size_t>> workers;
  for (const RecordedOp& op : session.ops_) workers.emplace(op.device, op.worker);
  for (const auto& [device, worker] : workers) {
    const std::string name = fmt::format("{} worker {}", devices.at(device), worker);
    text += ",\n" + JsonText(NameEvent("thread_name", process, WorkerTrack(device, worker), name));
  }
  std::unordered_map<const CostedGroup*, std::string> members;
  for (const RecordedOp& op : session.ops_) {
    std::string& of_group = members[op.group];
    if (of_group.empty()) of_group = OpMembers(*op.group, process);
    AppendOp(of_group, WorkerTrack(op.device, op.worker), op.begin - start_, op.end - op.begin,
             text);
  }
  for (const RequestSpan& request : session.requests_) {
    AppendRequest(process, request, start_, text);
  }
}

std::string TraceRecorder::ToJson() const {
  // One event per line. The text is put together event by event, because a tree of all events would
  // take many times its size.
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const std::lock_guard lock(mutex_);
  size_t process = 0;
  for (const Session& session : sessions_) AppendSession(session, ++process, text);
  return text + "\n]}\n";
}

Result<std::unique_ptr<TraceFile>> TraceFile::Create(const TraceFlags& flags) {
  if (!flags.path) return std::unique_ptr<TraceFile>();
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(*flags.path));
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(file), flags.ops));
}

Result<int> TraceFile::Finish(const std::unique_ptr<TraceFile>& trace, Result<int> result) {
  if (!trace || (!result && trace->recorder_.empty())) return result;
  const Status written = trace->Write();
  if (result && !written) return tl::unexpected(written.error());
  return result;
}

Status TraceFile::Write() {
  const std::string text = recorder_.ToJson();
  RL_RETURN_IF_ERROR(file_.Append(std::as_bytes(std::span(text))));
  return file_.Commit();
}

}  // namespace rullama::cli
