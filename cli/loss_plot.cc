#include "cli/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "cli/report/chart.h"
#include "cli/report/markup.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxPoints = 400;
constexpr size_t kMaxMarks = 40;

ChartPoint PointOf(int64_t step, double loss) {
  return {.x = static_cast<double>(step),
          .y = loss,
          .note = fmt::format("step {}: {}", step, NumberText(loss))};
}

ChartSeries Training(const std::vector<double>& losses) {
  const size_t steps = losses.size() / kMaxPoints + 1;  // of a point
  ChartSeries series{.label = steps == 1 ? std::string("training")
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

}  // namespace

Picture LossPlot(const LossHistory& history) {
  Chart chart{.title = "Loss", .x_label = "step", .y_label = "mean loss of a token"};
  chart.series.push_back(Training(history.steps));
  ChartSeries validation{.label = "validation"};
  for (const LossPoint& point : history.validations) {
    validation.points.push_back(PointOf(point.step, point.loss));
  }
  if (!validation.points.empty()) chart.series.push_back(std::move(validation));
  return DrawChart(chart);
}

}  // namespace rullama::cli
