#include "cli/reports/profile_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/commands/json_text.h"
#include "core/base/json_reader.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr double kGigaPerSecond = 1e9;
constexpr double kMillisecondsPerSecond = 1e3;

// "12.3 | 4.567 | 3 | 8.90 | 1.23 | bytes | 42 |": share of all segments, milliseconds of a step,
// spread, rates, bound, share of the bound.
std::string ProfileNumbers(const ProfileReport& report, const OpTotal& total,
                           const UnderRoof& place) {
  return fmt::format(
      "{:.1f} | {:.3f} | {} | {:.2f} | {:.2f} | {} | {} |\n", report.Percent(total.seconds),
      report.StepMilliseconds(total.seconds), SpreadText(total), total.byte_rate() / kGigaPerSecond,
      total.operation_rate() / kGigaPerSecond, BoundText(place.bound), ShareText(place));
}

std::string ProfileTableHead(std::string_view first) {
  return fmt::format(
      "\n| {} | % of time | ms a step | spread % | GB/s | Gop/s | bound by | % of bound |\n"
      "|---|---:|---:|---:|---:|---:|---|---:|\n",
      first);
}

std::string TimeText(double milliseconds) {
  return milliseconds < 0 ? "-" : fmt::format("{:.3f}", milliseconds);
}

std::string ComparisonTable(std::string_view first, const std::vector<TimePair>& pairs) {
  std::string text =
      fmt::format("\n| {} | ms a step | before | times as fast |\n|---|---:|---:|---:|\n", first);
  for (const TimePair& pair : pairs) {
    text += fmt::format("| {} | {} | {} | {} |\n", pair.name, pair.NowText(), pair.BeforeText(),
                        pair.FactorText());
  }
  return text;
}

// Kinds or layers of both, in the order of `report`, then those of `before` alone.
std::vector<TimePair> SideBySide(const ProfileReport& report, const ProfileReport& before,
                                 std::vector<NamedTotal> (*totals)(const StepProfile&)) {
  std::vector<TimePair> pairs;
  for (const NamedTotal& of : totals(report.profile)) {
    pairs.push_back({KindText(report.profile, of), report.StepMilliseconds(of.total.seconds)});
  }
  for (const NamedTotal& of : totals(before.profile)) {
    const std::string name = KindText(before.profile, of);
    auto pair = std::ranges::find(pairs, name, &TimePair::name);
    if (pair == pairs.end()) pair = pairs.insert(pair, {.name = name});
    pair->before = before.StepMilliseconds(of.total.seconds);
  }
  return pairs;
}

// Empty if there is nothing to compare.
std::string WorkerTable(const ProfileReport& report) {
  if (!WorkersShare(report.profile)) return {};
  std::string text =
      "\n| worker | busy, % of time | busy ms a step | waiting ms a step |\n|---|---:|---:|---:|\n";
  for (const BusyWorker& of : report.profile.workers) {
    text += fmt::format("| {} | {:.1f} | {:.3f} | {:.3f} |\n", WorkerText(of),
                        report.Percent(of.seconds), report.StepMilliseconds(of.seconds),
                        report.WaitingMilliseconds(of));
  }
  return text;
}

json WorkersJson(const std::vector<BusyWorker>& workers) {
  json list = json::array();
  for (const BusyWorker& of : workers) {
    list.push_back({{"device", of.device}, {"worker", of.worker}, {"busy_seconds", of.seconds}});
  }
  return list;
}

// Old files have none.
std::vector<BusyWorker> WorkersFrom(const json& line) {
  std::vector<BusyWorker> workers;
  for (const json& of : line.value("workers", json::array())) {
    workers.push_back({.device = of.at("device").get<std::string>(),
                       .worker = of.at("worker").get<uint32_t>(),
                       .seconds = of.at("busy_seconds").get<double>()});
  }
  return workers;
}

json LayerJson(const std::optional<int64_t>& layer) { return layer ? json(*layer) : json(); }

json TotalJson(const OpTotal& total) {
  json result = {{"seconds", total.seconds},
                 {"bytes", total.bytes},
                 {"operations", total.operations},
                 {"executions", total.executions}};
  if (!total.runs.empty()) result["runs"] = total.runs;
  return result;
}

std::vector<double> RunsFrom(const json& from) {
  return from.contains("runs") ? from["runs"].get<std::vector<double>>() : std::vector<double>();
}

OpTotal TotalFrom(const json& from) {
  return {.seconds = from.at("seconds").get<double>(),
          .bytes = from.at("bytes").get<double>(),
          .operations = from.at("operations").get<double>(),
          .executions = from.at("executions").get<int64_t>(),
          .runs = RunsFrom(from)};
}

json WithTotal(json names, const OpTotal& total) {
  names.update(TotalJson(total));
  return names;
}

// Throws what the JSON library throws for missing members and other types.
ProfileReport ReportFrom(const json& line) {
  ProfileReport report{.subject = line.at("subject").get<std::string>(),
                       .test = line.at("test").get<std::string>(),
                       .profile = {.steps = line.at("steps").get<int64_t>(),
                                   .seconds = line.at("seconds").get<double>(),
                                   .runs = RunsFrom(line),
                                   .ops = {},
                                   .workers = WorkersFrom(line)},
                       .peaks = {},
                       .device = line.value("device", ""),
                       .threads = line.value("threads", "")};
  for (const json& op : line.at("ops")) {
    const json& layer = op.at("layer");
    report.profile.ops.push_back(
        {.device = op.at("device").get<std::string>(),
         .kind = op.at("kind").get<std::string>(),
         .value = op.at("value").get<std::string>(),
         .shapes = op.at("shapes").get<std::string>(),
         .layer = layer.is_null() ? std::nullopt : std::optional(layer.get<int64_t>()),
         .total = TotalFrom(op)});
  }
  for (const json& peaks : line.at("peaks")) {
    report.peaks.push_back({.device = peaks.at("device").get<std::string>(),
                            .byte_rate = peaks.at("bytes_per_s").get<double>(),
                            .operation_rate = peaks.at("operations_per_s").get<double>(),
                            .scatter = peaks.value("scatter", 0.0)});
  }
  return report;
}

}  // namespace

double ProfileReport::StepMilliseconds(double seconds) const {
  const auto steps = static_cast<double>(std::max<int64_t>(1, profile.steps));
  return seconds * kMillisecondsPerSecond / steps;
}

double ProfileReport::Percent(double seconds) const {
  return profile.seconds > 0 ? 100 * seconds / profile.seconds : 0;
}

double ProfileReport::SecondsBetween() const {
  return std::max(0.0, profile.seconds - profile.op_seconds());
}

double ProfileReport::WaitingMilliseconds(const BusyWorker& worker) const {
  return StepMilliseconds(std::max(0.0, profile.seconds - worker.seconds));
}

std::string_view BoundText(Bound bound) {
  switch (bound) {
    case Bound::kBytes:
      return "bytes";
    case Bound::kOperations:
      return "operations";
    case Bound::kUnknown:
      return "-";
  }
  return "-";
}

std::string ShareText(const UnderRoof& place) {
  constexpr double kAll = 1.005;  // what rounds to more than 100 %
  if (place.bound == Bound::kUnknown) return "-";
  return place.share >= kAll ? "100+" : fmt::format("{:.0f}", 100 * place.share);
}

std::string SpreadText(const OpTotal& total) {
  return total.runs.size() < 2 ? "-" : fmt::format("{:.0f}", 100 * total.spread());
}

std::string EachText(const ProfileReport& report, const RoleTotal& role) {
  if (role.count < 2) return {};
  return fmt::format("{:.3f}, {:.3f}, {:.3f}", report.StepMilliseconds(role.best),
                     report.StepMilliseconds(role.median), report.StepMilliseconds(role.worst));
}

std::string ProfileReport::CircumstancesText() const {
  std::string text = device;
  if (threads == "1") text += ", 1 thread";
  if (!threads.empty() && threads != "1" && threads != "-")
    text += fmt::format(", {} threads", threads);
  if (!profile.runs.empty()) {
    text += fmt::format("{}medians of {} runs", text.empty() ? "" : "; ", profile.runs.size());
  }
  return text;
}

std::string PeaksText(const DevicePeaks& peaks) {
  constexpr double kNotable = 0.15;
  return fmt::format("{}: {:.1f} GB/s, {:.1f} Gop/s, ridge at {:.1f} operations for each byte{}",
                     peaks.device, peaks.byte_rate / kGigaPerSecond,
                     peaks.operation_rate / kGigaPerSecond, peaks.ridge(),
                     peaks.scatter < kNotable
                         ? ""
                         : fmt::format("; another measurement was {:.0f} % lower: something else "
                                       "uses the machine",
                                       100 * peaks.scatter));
}

std::string KindText(const StepProfile& profile, const NamedTotal& kind) {
  const bool several = std::ranges::any_of(
      profile.ops, [&](const ProfiledOp& op) { return op.device != profile.ops.front().device; });
  return several ? fmt::format("{} {}", kind.device, kind.name) : kind.name;
}

std::string WorkerText(const BusyWorker& worker) {
  return fmt::format("{} {}", worker.device, worker.worker);
}

bool WorkersShare(const StepProfile& profile) {
  return std::ranges::any_of(profile.workers, [](const BusyWorker& of) { return of.worker > 0; });
}

std::string ProfileText(const ProfileReport& report, size_t slowest) {
  const StepProfile& profile = report.profile;
  std::string text;
  if (const std::string circumstances = report.CircumstancesText(); !circumstances.empty()) {
    text += fmt::format("{}\n", circumstances);
  }
  for (const DevicePeaks& peaks : report.peaks) {
    if (peaks.known()) text += fmt::format("peaks of {}\n", PeaksText(peaks));
  }
  text += ProfileTableHead("kind");
  for (const NamedTotal& kind : KindsOf(profile)) {
    const UnderRoof place = PlaceUnderRoof(kind.total, PeaksOf(report.peaks, kind.device));
    text += fmt::format("| {} | {}", KindText(profile, kind),
                        ProfileNumbers(report, kind.total, place));
  }
  OpTotal between;
  between.seconds = report.SecondsBetween();
  text += fmt::format("| between ops | {}", ProfileNumbers(report, between, {}));
  text += ProfileTableHead("layer");
  for (const NamedTotal& layer : LayersOf(profile)) {
    text += fmt::format("| {} | {}", layer.name, ProfileNumbers(report, layer.total, {}));
  }
  text += WorkerTable(report);
  text += ProfileTableHead("slowest ops");
  const std::vector<RoleTotal> roles = RolesOf(profile);
  for (size_t i = 0; i < std::min(slowest, roles.size()); ++i) {
    const RoleTotal& role = roles[i];
    const UnderRoof place = PlaceUnderRoof(role.total, PeaksOf(report.peaks, role.device));
    const std::string each =
        role.count < 2 ? "" : fmt::format(" ({} ops: {} ms)", role.count, EachText(report, role));
    text += fmt::format("| {} {} {}: {}{} | {}", role.device, role.kind, role.role, role.shapes,
                        each, ProfileNumbers(report, role.total, place));
  }
  return text;
}

std::string TimePair::NowText() const { return TimeText(now); }

std::string TimePair::BeforeText() const { return TimeText(before); }

std::string TimePair::FactorText() const {
  return now > 0 && before >= 0 ? fmt::format("{:.2f}", before / now) : "-";
}

std::vector<TimePair> KindPairs(const ProfileReport& report, const ProfileReport& before) {
  std::vector<TimePair> pairs = SideBySide(report, before, KindsOf);
  pairs.push_back({"between ops", report.StepMilliseconds(report.SecondsBetween()),
                   before.StepMilliseconds(before.SecondsBetween())});
  pairs.push_back({"all", report.StepMilliseconds(report.profile.seconds),
                   before.StepMilliseconds(before.profile.seconds)});
  return pairs;
}

std::string ComparisonText(const ProfileReport& report, const ProfileReport& before) {
  const std::string circumstances = before.CircumstancesText();
  return fmt::format("\nbefore: {}{}{}\n", before.subject, circumstances.empty() ? "" : "; ",
                     circumstances) +
         ComparisonTable("kind", KindPairs(report, before)) +
         ComparisonTable("layer", SideBySide(report, before, LayersOf));
}

std::string ProfileJson(const ProfileReport& report) {
  const StepProfile& profile = report.profile;
  json kinds = json::array(), layers = json::array(), ops = json::array(), peaks = json::array();
  for (const NamedTotal& kind : KindsOf(profile)) {
    kinds.push_back(WithTotal({{"device", kind.device}, {"kind", kind.name}}, kind.total));
  }
  for (const NamedTotal& layer : LayersOf(profile)) {
    layers.push_back(WithTotal({{"layer", LayerJson(layer.layer)}}, layer.total));
  }
  for (const ProfiledOp& op : profile.ops) {
    ops.push_back(WithTotal({{"device", op.device},
                             {"kind", op.kind},
                             {"value", op.value},
                             {"shapes", op.shapes},
                             {"layer", LayerJson(op.layer)}},
                            op.total));
  }
  for (const DevicePeaks& of : report.peaks) {
    peaks.push_back({{"device", of.device},
                     {"bytes_per_s", of.byte_rate},
                     {"operations_per_s", of.operation_rate},
                     {"scatter", of.scatter}});
  }
  return JsonLine({{"subject", report.subject},
                   {"device", report.device},
                   {"threads", report.threads},
                   {"test", report.test},
                   {"steps", profile.steps},
                   {"seconds", profile.seconds},
                   {"runs", profile.runs},
                   {"op_seconds", profile.op_seconds()},
                   {"peaks", peaks},
                   {"kinds", kinds},
                   {"layers", layers},
                   {"workers", WorkersJson(profile.workers)},
                   {"ops", ops}});
}

Result<std::vector<ProfileReport>> ParseProfiles(std::string_view text, const std::string& origin) {
  std::vector<ProfileReport> reports;
  const auto bad = [&](std::string_view why) {
    return MakeError(ErrorKind::kUsage, "profile.file",
                     "line {} of {} is not a profile ({}); expected the output of "
                     "'rullama profile --json'",
                     reports.size() + 1, origin, why);
  };
  try {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      if (end > at) {
        const auto line = ReadJson(text.substr(at, end - at));
        if (!line) return bad(line.error().ToString());
        reports.push_back(ReportFrom(*line));
      }
      at = end + 1;
    }
  } catch (const json::exception& error) {
    return bad(error.what());
  }
  return reports;
}

Result<ProfileReport> FindTest(const std::vector<ProfileReport>& reports, const std::string& test,
                               const std::string& origin) {
  const auto found = std::ranges::find(reports, test, &ProfileReport::test);
  if (found != reports.end()) return *found;
  std::vector<std::string> names;
  names.reserve(reports.size());
  for (const ProfileReport& report : reports) names.push_back(report.test);
  return MakeError(ErrorKind::kUsage, "profile.test",
                   "{} has no test {}, but: {}; give -p and -n as when it was written", origin,
                   test, fmt::join(names, ", "));
}

}  // namespace rullama::cli
