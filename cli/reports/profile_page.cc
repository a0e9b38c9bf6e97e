#include "cli/reports/profile_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "cli/reports/page.h"
#include "core/drawing/chart.h"
#include "core/drawing/markup.h"

namespace rullama::cli {
namespace {

constexpr double kBytesOfUnit = 1e9;       // GB
constexpr double kOperationsOfUnit = 1e9;  // Gop

// The numbers of kinds in the roofline and its table, from 1, the longest first.
struct NumberedKind {
  size_t number = 0;
  NamedTotal kind;
  std::string text;
};

std::vector<NumberedKind> NumberedKinds(const ProfileReport& report) {
  std::vector<NumberedKind> kinds;
  for (NamedTotal& kind : KindsOf(report.profile)) {
    std::string text = KindText(report.profile, kind);
    kinds.push_back({kinds.size() + 1, std::move(kind), std::move(text)});
  }
  return kinds;
}

// The kinds with operations on a device as points; `numbers` are those of the kinds with the same
// texts.
drawing::ChartSeries KindPoints(const std::string& label, const ProfileReport& report,
                                const std::string& device,
                                const std::vector<NumberedKind>& numbers) {
  drawing::ChartSeries series{.label = label, .points = {}, .joined = false};
  for (const NumberedKind& of : NumberedKinds(report)) {
    const OpTotal& total = of.kind.total;
    if (of.kind.device != device || total.operations <= 0 || total.seconds <= 0) continue;
    const auto same = std::ranges::find(numbers, of.text, &NumberedKind::text);
    series.points.push_back(
        {.x = IntensityOf(total),
         .y = total.operation_rate() / kOperationsOfUnit,
         .note = fmt::format("{}: {:.1f} % of the time, {:.2f} GB/s, {:.2f} Gop/s", of.text,
                             report.Percent(total.seconds), total.byte_rate() / kBytesOfUnit,
                             total.operation_rate() / kOperationsOfUnit),
         .label = same == numbers.end() ? "" : fmt::format("{}", same->number)});
  }
  std::ranges::sort(series.points, {}, &drawing::ChartPoint::x);
  return series;
}

double DecadeBelow(double value) { return std::pow(10, std::floor(std::log10(value))); }
double DecadeAbove(double value) { return std::pow(10, std::ceil(std::log10(value))); }

// The roof from one end of the axis to the other.
drawing::ChartSeries RoofOf(const DevicePeaks& peaks,
                            const std::vector<drawing::ChartSeries>& points) {
  double low = peaks.ridge() / 10, high = peaks.ridge() * 10;
  for (const drawing::ChartSeries& series : points) {
    for (const drawing::ChartPoint& point : series.points) {
      low = std::min(low, point.x);
      high = std::max(high, point.x);
    }
  }
  low = DecadeBelow(low);
  high = DecadeAbove(high);
  const double peak = peaks.operation_rate / kOperationsOfUnit;
  return {.label = "peaks of " + PeaksText(peaks),
          .points = {{.x = low, .y = low * peaks.byte_rate / kBytesOfUnit},
                     {.x = peaks.ridge(), .y = peak},
                     {.x = high, .y = peak}},
          .has_marks = false};
}

// Nothing for a device whose ops compute nothing, as a host that only looks up rows.
std::optional<drawing::Picture> Roofline(const ProfiledTest& test, const std::string& device,
                                         const std::vector<NumberedKind>& kinds) {
  std::vector<drawing::ChartSeries> series = {
      KindPoints("kinds of ops", test.report, device, kinds)};
  if (test.before) series.push_back(KindPoints("before", *test.before, device, kinds));
  std::erase_if(series, [](const drawing::ChartSeries& of) { return of.points.empty(); });
  if (series.empty()) return std::nullopt;
  const DevicePeaks peaks = PeaksOf(test.report.peaks, device);
  if (peaks.known()) series.push_back(RoofOf(peaks, series));
  return drawing::DrawChart({.title = fmt::format("Roofline of {}, {}", device, test.report.test),
                             .x_label = "operations for each byte",
                             .y_label = "Gop/s",
                             .log_x = true,
                             .log_y = true,
                             .series = std::move(series)});
}

std::vector<Cell> NumberHeads(std::vector<Cell> first) {
  for (const char* head : {"% of time", "ms a step", "spread %", "GB/s", "Gop/s", "op/byte"}) {
    first.push_back({head, "number"});
  }
  first.push_back({"bound by"});
  first.push_back({"% of bound", "number"});
  return first;
}

std::vector<Cell> NumberCells(std::vector<Cell> first, const ProfileReport& report,
                              const OpTotal& total, const UnderRoof& place) {
  const auto add = [&first](std::string text) { first.push_back({std::move(text), "number"}); };
  add(fmt::format("{:.1f}", report.Percent(total.seconds)));
  add(fmt::format("{:.3f}", report.StepMilliseconds(total.seconds)));
  add(SpreadText(total));
  add(fmt::format("{:.2f}", total.byte_rate() / kBytesOfUnit));
  add(fmt::format("{:.2f}", total.operation_rate() / kOperationsOfUnit));
  add(fmt::format("{:.2f}", IntensityOf(total)));
  first.push_back({std::string(BoundText(place.bound))});
  add(ShareText(place));
  return first;
}

void AddKinds(const ProfileReport& report, const std::vector<NumberedKind>& kinds, Page& page) {
  std::vector<std::vector<Cell>> rows;
  for (const NumberedKind& of : kinds) {
    const UnderRoof place = PlaceUnderRoof(of.kind.total, PeaksOf(report.peaks, of.kind.device));
    rows.push_back(NumberCells({{fmt::format("{}", of.number), "number"}, {of.text, "name"}},
                               report, of.kind.total, place));
  }
  OpTotal between;
  between.seconds = report.SecondsBetween();
  rows.push_back(NumberCells({{""}, {"between ops"}}, report, between, {}));
  page.Table(NumberHeads({{"", "number"}, {"kind"}}), rows);
}

void AddComparison(const ProfileReport& report, const ProfileReport& before, Page& page) {
  page.Subsection("Compared with the earlier run");
  page.Paragraph("before: " + before.subject);
  page.Paragraph(before.CircumstancesText());
  std::vector<std::vector<Cell>> rows;
  for (const TimePair& pair : KindPairs(report, before)) {
    rows.push_back({{pair.name, "name"},
                    {pair.NowText(), "number"},
                    {pair.BeforeText(), "number"},
                    {pair.FactorText(), "number"}});
  }
  page.Table({{"kind"}, {"ms a step", "number"}, {"before", "number"}, {"times as fast", "number"}},
             rows);
}

drawing::ChartSeries LayerSeries(const std::string& label, const ProfileReport& report) {
  drawing::ChartSeries series{.label = label};
  for (const NamedTotal& layer : LayersOf(report.profile)) {
    if (!layer.layer) continue;
    const double milliseconds = report.StepMilliseconds(layer.total.seconds);
    series.points.push_back(
        {.x = static_cast<double>(*layer.layer),
         .y = milliseconds,
         .note = fmt::format("layer {}: {:.3f} ms", *layer.layer, milliseconds)});
  }
  return series;
}

void AddLayers(const ProfiledTest& test, Page& page) {
  std::vector<drawing::ChartSeries> series = {
      LayerSeries(test.before ? "layers" : "", test.report)};
  if (test.before) series.push_back(LayerSeries("before", *test.before));
  page.Figure(
      drawing::InlineSvg(drawing::DrawChart({.title = "Time of each layer, " + test.report.test,
                                             .x_label = "layer",
                                             .y_label = "ms a step",
                                             .series = std::move(series)})),
      "Layers that take longer than their neighbours have other shapes or a longer cache, "
      "unless their spread is large: then something else used the machine.");
}

void AddWorkers(const ProfileReport& report, Page& page) {
  if (!WorkersShare(report.profile)) return;
  std::vector<std::vector<Cell>> rows;
  rows.reserve(report.profile.workers.size());
  for (const BusyWorker& of : report.profile.workers) {
    rows.push_back({{WorkerText(of), "name"},
                    {fmt::format("{:.1f}", report.Percent(of.seconds)), "number"},
                    {fmt::format("{:.3f}", report.StepMilliseconds(of.seconds)), "number"},
                    {fmt::format("{:.3f}", report.WaitingMilliseconds(of)), "number"}});
  }
  page.Subsection("Workers");
  page.Paragraph(
      "The time in which each thread of a processor, or queue of a GPU, ran ops, and the rest of "
      "the time, in which it waited.");
  page.Table({{"worker"},
              {"busy, % of time", "number"},
              {"busy ms a step", "number"},
              {"waiting ms a step", "number"}},
             rows);
}

void AddSlowest(const ProfileReport& report, size_t slowest, Page& page) {
  std::vector<std::vector<Cell>> rows;
  const std::vector<RoleTotal> roles = RolesOf(report.profile);
  for (size_t i = 0; i < std::min(slowest, roles.size()); ++i) {
    const RoleTotal& role = roles[i];
    const UnderRoof place = PlaceUnderRoof(role.total, PeaksOf(report.peaks, role.device));
    rows.push_back(NumberCells({{role.role, "name"},
                                {role.kind, "name"},
                                {role.shapes, "name"},
                                {fmt::format("{}", role.count), "number"},
                                {EachText(report, role), "number"}},
                               report, role.total, place));
  }
  page.Subsection(fmt::format("The {} slowest ops", rows.size()));
  page.Paragraph(
      "The ops that do the same in all layers are one row, with the milliseconds of the fastest, "
      "the median and the slowest of them.");
  page.Table(
      NumberHeads({{"value"}, {"kind"}, {"shapes"}, {"ops", "number"}, {"ms each", "number"}}),
      rows);
}

void AddTest(const ProfiledTest& test, size_t slowest, Page& page) {
  const ProfileReport& report = test.report;
  page.Section(fmt::format("{}: {:.3f} ms a step, {} step{}", report.test,
                           report.StepMilliseconds(report.profile.seconds), report.profile.steps,
                           report.profile.steps == 1 ? "" : "s"));
  const std::vector<NumberedKind> kinds = NumberedKinds(report);
  std::set<std::string> devices;
  for (const NumberedKind& of : kinds) devices.insert(of.kind.device);
  for (const std::string& device : devices) {
    const std::optional<drawing::Picture> roofline = Roofline(test, device, kinds);
    if (!roofline) continue;
    page.Figure(drawing::InlineSvg(*roofline),
                "The line is the roof: what the device reached at best in this call. Left of its "
                "bend, bytes bound an op, right of it operations. Numbers are those of the table, "
                "the longest kind first; kinds that compute nothing are in the table only.");
  }
  AddKinds(report, kinds, page);
  if (test.before) AddComparison(report, *test.before, page);
  AddLayers(test, page);
  AddWorkers(report, page);
  AddSlowest(report, slowest, page);
}

}  // namespace

std::string ProfilePage(const std::vector<ProfiledTest>& tests, size_t slowest) {
  Page page("Where the time goes");
  if (!tests.empty()) {
    page.Paragraph(tests.front().report.subject);
    page.Paragraph(tests.front().report.CircumstancesText());
  }
  for (const ProfiledTest& test : tests) AddTest(test, slowest, page);
  return page.ToHtml();
}

}  // namespace rullama::cli
