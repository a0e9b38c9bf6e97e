#include "core/drawing/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/drawing/markup.h"
#include "core/drawing/style.h"

namespace rullama::drawing {
namespace {

constexpr double kHeight = 360;
constexpr double kChartLeft = 70;
constexpr double kChartRight = 24;
constexpr double kChartTop = 40;
constexpr double kChartBottom = 52;
constexpr double kHalfColumn = 3.5;  // of a label
constexpr double kLegendLine = 18;
constexpr double kLabelOffset = 7;  // of a label from the middle of its mark
constexpr double kLane = 16;        // beyond the axis, for 0 and infinity on a logarithmic one

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool empty() const { return low > high; }
};

class ChartPainter {
 public:
  explicit ChartPainter(const Chart& chart)
      : chart_(chart), x_(ScaleOfX(chart)), y_(ScaleOfY(chart)) {
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) {
        has_low_lane_ = has_low_lane_ || IsTooLow(point.y);
        has_high_lane_ = has_high_lane_ || !std::isfinite(point.y);
      }
    }
    const bool named =
        std::ranges::any_of(chart.series, [](const auto& s) { return !s.label.empty(); });
    legend_lines_ = named ? chart.series.size() : 0;
  }

  Picture Paint() {
    Text(kChartLeft, 18, "", chart_.title);
    PaintAxes();
    for (size_t i = 0; i < chart_.series.size(); ++i) PaintSeries(i);
    for (const ChartLimit& limit : chart_.limits) PaintLimit(limit);
    return {kPictureWidth, Height(), chart_.title, std::move(body_)};
  }

 private:
  static Scale ScaleOfX(const Chart& chart) {
    Range range;
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) range.Add(point.x);
    }
    if (range.empty()) range = {chart.log_x ? 1.0 : 0.0, 1};
    return chart.log_x ? Scale::Logarithmic(range.low, range.high)
                       : Scale::Tight(range.low, range.high);
  }
  static Scale ScaleOfY(const Chart& chart) {
    Range range;
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) {
        if (std::isfinite(point.y) && (!chart.log_y || point.y > 0)) range.Add(point.y);
      }
    }
    for (const ChartLimit& limit : chart.limits) {
      if (!chart.log_y || limit.y > 0) range.Add(limit.y);
    }
    if (range.empty()) range = {chart.log_y ? 0.1 : 0.0, 1};
    if (chart.log_y) return Scale::Logarithmic(range.low, range.high);
    return Scale::Linear(std::min(0.0, range.low), range.high);
  }

  [[nodiscard]] bool IsTooLow(double y) const { return chart_.log_y && std::isfinite(y) && y <= 0; }
  [[nodiscard]] double Top() const {
    return kChartTop + kLegendLine * static_cast<double>(legend_lines_);
  }
  [[nodiscard]] double Height() const { return Top() - kChartTop + kHeight; }
  [[nodiscard]] double Bottom() const { return Height() - kChartBottom; }
  [[nodiscard]] double High() const { return Top() + (has_high_lane_ ? kLane : 0); }
  [[nodiscard]] double Low() const { return Bottom() - (has_low_lane_ ? kLane : 0); }
  [[nodiscard]] double X(double value) const {
    return kChartLeft + x_.At(value) * (kPictureWidth - kChartLeft - kChartRight);
  }
  [[nodiscard]] double Y(double value) const {
    if (!std::isfinite(value)) return Top() + 4;
    if (IsTooLow(value)) return Bottom() - 4;
    return Low() - y_.At(value) * (Low() - High());
  }

  void Text(double x, double y, std::string_view css, std::string_view text) {
    body_ += SvgText(x, y, css, text);
  }
  void Line(double x1, double y1, double x2, double y2, std::string_view css) {
    body_ +=
        fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", css, x1, y1, x2, y2);
  }

  void PaintAxes() {
    for (const Tick& tick : y_.Ticks()) {
      Line(kChartLeft, Y(tick.value), kPictureWidth - kChartRight, Y(tick.value), "grid");
      Text(kChartLeft - 8, Y(tick.value) + 4, "end dim", tick.label);
    }
    if (has_low_lane_) Text(kChartLeft - 8, Bottom() + 1, "end dim", "0");
    if (has_high_lane_) Text(kChartLeft - 8, Top() + 8, "end dim", "∞");
    PaintTicksOfX();
    Line(kChartLeft, Bottom(), kPictureWidth - kChartRight, Bottom(), "axis");
    Text((kChartLeft + kPictureWidth - kChartRight) / 2, Height() - 12, "middle dim",
         chart_.x_label);
    Text(8, Top() - 10, "dim", chart_.y_label);
  }

  // Steps and positions: there is nothing between them.
  [[nodiscard]] bool HasWholeX() const {
    return std::ranges::all_of(chart_.series, [](const ChartSeries& series) {
      return std::ranges::all_of(
          series.points, [](const ChartPoint& point) { return point.x == std::floor(point.x); });
    });
  }

  // Leaves out labels that would touch the one before.
  void PaintTicksOfX() {
    double free_from = 0;
    const auto ticks = chart_.x_ticks.empty() ? x_.Ticks(12, HasWholeX()) : chart_.x_ticks;
    for (const Tick& tick : ticks) {
      const double half = kHalfColumn * static_cast<double>(tick.label.size());
      if (X(tick.value) - half < free_from) continue;
      free_from = X(tick.value) + half + kHalfColumn;
      Line(X(tick.value), Bottom(), X(tick.value), Bottom() + 5, "axis");
      Text(X(tick.value), Bottom() + 19, "middle dim", tick.label);
    }
  }

  void PaintLimit(const ChartLimit& limit) {
    if (chart_.log_y && limit.y <= 0) return;
    Line(kChartLeft, Y(limit.y), kPictureWidth - kChartRight, Y(limit.y), "limit");
    Text(kChartLeft + 6, Y(limit.y) - 5, "limit-text", limit.label);
  }

  void PaintSeries(size_t index) {
    const ChartSeries& series = chart_.series[index];
    body_ += fmt::format("<g class=\"s{}\">", index % kSeriesColours);
    if (legend_lines_ > 0) {
      const double y = 36 + kLegendLine * static_cast<double>(index);
      if (series.has_marks) Marker(kChartLeft + 5, y - 4, index, "");
      if (!series.has_marks) Line(kChartLeft, y - 4, kChartLeft + 11, y - 4, "curve");
      Text(kChartLeft + 16, y, "series-text", series.label);
    }
    if (series.joined && series.points.size() > 1) {
      body_ += "<path class=\"curve\" d=\"";
      for (size_t i = 0; i < series.points.size(); ++i) {
        body_ += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", X(series.points[i].x),
                             Y(series.points[i].y));
      }
      body_ += "\"/>";
    }
    for (const ChartPoint& point : series.points) {
      if (series.has_marks) PaintPoint(point, index);
      if (point.label.empty()) continue;
      Text(X(point.x) + kLabelOffset, Y(point.y) + 4, "series-text small", point.label);
    }
    body_ += "</g>";
  }

  void PaintPoint(const ChartPoint& point, size_t index) {
    const std::string title =
        point.note.empty() ? "" : fmt::format("<title>{}</title>", Escaped(point.note));
    if (!point.marked) return Marker(X(point.x), Y(point.y), index, title);
    body_ += fmt::format("<path class=\"alarm\" d=\"M{:.1f} {:.1f}l6 11h-12z\">{}</path>",
                         X(point.x), Y(point.y) - 7, title);
  }

  // Series differ by shape too, for those who do not tell the colours apart.
  void Marker(double x, double y, size_t index, std::string_view title) {
    switch (index % 3) {
      case 0:
        body_ += fmt::format(
            "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\">{}</circle>", x, y, title);
        break;
      case 1:
        body_ += fmt::format(
            "<rect class=\"dot\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"8\" height=\"8\">{}</rect>",
            x - 4, y - 4, title);
        break;
      default:
        body_ += fmt::format("<path class=\"dot\" d=\"M{:.1f} {:.1f}l5 5l-5 5l-5 -5z\">{}</path>",
                             x, y - 5, title);
    }
  }

  const Chart& chart_;
  Scale x_, y_;
  bool has_low_lane_ = false;
  bool has_high_lane_ = false;
  size_t legend_lines_ = 0;
  std::string body_;
};

}  // namespace

Picture DrawChart(const Chart& chart) { return ChartPainter(chart).Paint(); }

}  // namespace rullama::drawing
