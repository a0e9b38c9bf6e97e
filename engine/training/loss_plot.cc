#include "engine/training/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "core/drawing/chart.h"
#include "core/drawing/markup.h"

namespace rullama {
namespace {

constexpr size_t kMaxPoints = 400;
constexpr size_t kMaxMarks = 40;

drawing::ChartPoint PointOf(int64_t step, double loss) {
  return {.x = static_cast<double>(step),
          .y = loss,
          .note = fmt::format("step {}: {}", step, drawing::NumberText(loss))};
}

drawing::ChartSeries Training(const std::vector<double>& losses) {
  const size_t steps = losses.size() / kMaxPoints + 1;  // of a point
  drawing::ChartSeries series{.label = steps == 1
                                           ? std::string("training")
                                           : fmt::format("training, mean of {} steps", steps)};
  for (size_t begin = 0; begin < losses.size(); begin += steps) {
    const auto part = std::span(losses).subspan(begin, std::min(steps, losses.size() - begin));
    const double sum = std::accumulate(part.begin(), part.end(), 0.0);
    series.points.push_back(
        PointOf(static_cast<int64_t>(begin + part.size()), sum / static_cast<double>(part.size())));
  }
  series.has_marks = series.points.size() <= kMaxMarks;
  return series;
}

// Whether the losses are so far apart that the small ones would all be at the lower edge.
bool FallsFar(const LossHistory& history) {
  constexpr double kFar = 20;
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  const auto add = [&](double loss) {
    if (!std::isfinite(loss) || loss <= 0) return;
    low = std::min(low, loss);
    high = std::max(high, loss);
  };
  for (const double loss : history.steps) add(loss);
  for (const LossPoint& point : history.validations) add(point.loss);
  return high > kFar * low;
}

}  // namespace

drawing::Picture LossPlot(const LossHistory& history) {
  drawing::Chart chart{.title = "Loss", .x_label = "step", .y_label = "mean loss of a token"};
  chart.log_y = FallsFar(history);
  chart.series.push_back(Training(history.steps));
  // Lines between a few points, or over an interruption, would look like measurements.
  drawing::ChartSeries validation{.label = "validation", .joined = false};
  for (const LossPoint& point : history.validations) {
    validation.points.push_back(PointOf(point.step, point.loss));
  }
  if (!validation.points.empty()) chart.series.push_back(std::move(validation));
  return drawing::DrawChart(chart);
}

}  // namespace rullama
