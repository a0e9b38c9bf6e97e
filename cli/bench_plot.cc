#include "cli/bench_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/report/chart.h"
#include "cli/report/markup.h"

namespace rullama::cli {
namespace {

std::string AtDepth(const BenchPoint& point) {
  return point.depth > 0 ? fmt::format("{} @ d{}", point.kind, point.depth) : point.kind;
}

std::string OfLength(const BenchPoint& point) {
  return fmt::format("{}{}", point.kind, point.tokens);
}

// One curve for each label.
Picture Plot(Chart chart, const std::vector<BenchPoint>& points,
             std::string (*label_of)(const BenchPoint&), int64_t BenchPoint::*x) {
  for (const BenchPoint& point : points) {
    const std::string label = label_of(point);
    auto series = std::ranges::find(chart.series, label, &ChartSeries::label);
    if (series == chart.series.end()) series = chart.series.insert(series, {.label = label});
    series->points.push_back(
        {.x = static_cast<double>(point.*x),
         .y = point.mean_per_s,
         .note = fmt::format("{}{}: {} ± {} tokens/s", OfLength(point),
                             point.depth > 0 ? fmt::format(" @ d{}", point.depth) : "",
                             NumberText(point.mean_per_s), NumberText(point.stddev_per_s))});
  }
  for (ChartSeries& series : chart.series) std::ranges::sort(series.points, {}, &ChartPoint::x);
  chart.y_label = "tokens/s";
  chart.log_y = true;
  return DrawChart(chart);
}

}  // namespace

Picture BenchPlot(const std::string& title, const std::vector<BenchPoint>& points) {
  std::set<int64_t> depths;
  for (const BenchPoint& point : points) depths.insert(point.depth);
  Picture plot =
      Plot({.title = title, .x_label = "tokens of the test"}, points, AtDepth, &BenchPoint::tokens);
  if (depths.size() < 2) return plot;
  const Picture over_depth = Plot({.title = title, .x_label = "tokens in the cache before"}, points,
                                  OfLength, &BenchPoint::depth);
  return Stacked(plot, over_depth);
}

}  // namespace rullama::cli
