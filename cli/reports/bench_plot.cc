#include "cli/reports/bench_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/drawing/chart.h"
#include "core/drawing/markup.h"

namespace rullama::cli {
namespace {

std::string DepthText(const BenchPoint& point) {
  return point.depth > 0 ? fmt::format(" @ d{}", point.depth) : "";
}

std::string SettingText(const BenchPoint& point) {
  return point.setting.empty() ? "" : ", " + point.setting;
}

std::string AtDepth(const BenchPoint& point) {
  return point.kind + DepthText(point) + SettingText(point);
}

std::string OfLength(const BenchPoint& point) {
  return fmt::format("{}{}{}", point.kind, point.tokens, SettingText(point));
}

std::string SpeedText(double per_s) {
  return per_s < 1000 ? drawing::NumberText(per_s) : fmt::format("{:.0f}", per_s);
}

// Lengths are mostly powers of two.
double PlaceOfLength(int64_t tokens) {
  return std::log2(static_cast<double>(std::max<int64_t>(1, tokens)));
}

double PlaceOfDepth(int64_t tokens) { return static_cast<double>(tokens); }

// One curve for each label, and a mark of the axis for each measured number of tokens.
drawing::Picture Plot(drawing::Chart chart, const std::vector<BenchPoint>& points,
                      std::string (*label_of)(const BenchPoint&), int64_t BenchPoint::*x,
                      double (*place_of)(int64_t)) {
  std::set<int64_t> measured;
  for (const BenchPoint& point : points) measured.insert(point.*x);
  for (const int64_t tokens : measured) {
    chart.x_ticks.push_back({place_of(tokens), fmt::format("{}", tokens)});
  }
  for (const BenchPoint& point : points) {
    const std::string label = label_of(point);
    auto series = std::ranges::find(chart.series, label, &drawing::ChartSeries::label);
    if (series == chart.series.end()) series = chart.series.insert(series, {.label = label});
    series->points.push_back(
        {.x = place_of(point.*x),
         .y = point.mean_per_s,
         .note = fmt::format("{}{}{}{}: {} ± {} tokens/s", point.kind, point.tokens,
                             DepthText(point), SettingText(point), SpeedText(point.mean_per_s),
                             SpeedText(point.stddev_per_s))});
  }
  for (drawing::ChartSeries& series : chart.series)
    std::ranges::sort(series.points, {}, &drawing::ChartPoint::x);
  chart.y_label = "tokens/s";
  chart.log_y = true;
  return drawing::DrawChart(chart);
}

}  // namespace

drawing::Picture BenchPlot(const std::string& title, const std::vector<BenchPoint>& points) {
  std::set<int64_t> depths;
  for (const BenchPoint& point : points) depths.insert(point.depth);
  drawing::Picture plot = Plot({.title = title, .x_label = "tokens of the test"}, points, AtDepth,
                               &BenchPoint::tokens, PlaceOfLength);
  if (depths.size() < 2) return plot;
  const drawing::Picture over_depth =
      Plot({.title = title, .x_label = "tokens in the cache before"}, points, OfLength,
           &BenchPoint::depth, PlaceOfDepth);
  return drawing::Stacked(plot, over_depth);
}

}  // namespace rullama::cli
