#include "cli/reports/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/drawing/markup.h"
#include "core/drawing/style.h"

namespace rullama::cli {
namespace {

constexpr double kMapLeft = 70;
constexpr double kMapTop = 48;
constexpr double kMapWidth = 866;
constexpr int64_t kMaxColumns = 192;
constexpr int64_t kMaxShownRows = 96;
constexpr double kDecades = 4;
constexpr size_t kNotFinite = drawing::kHeatColours;

// The index of a value's colour: 0 where it is kDecades below the largest.
size_t ColourOf(double value, double largest) {
  if (!std::isfinite(value)) return kNotFinite;
  if (!(value > 0) || !(largest > 0)) return 0;
  const double part = 1 + std::log10(value / largest) / kDecades;
  const auto index = static_cast<int64_t>(std::ceil(part * (drawing::kHeatColours - 1)));
  return static_cast<size_t>(std::clamp<int64_t>(index, 0, drawing::kHeatColours - 1));
}

class HeatPainter {
 public:
  explicit HeatPainter(const HeatMap& map)
      : map_(map),
        rows_(std::min(map.rows, kMaxShownRows)),
        columns_(std::min(map.columns, kMaxColumns)),
        width_(kMapWidth / static_cast<double>(std::max<int64_t>(columns_, 1))),
        height_(std::clamp(320 / static_cast<double>(std::max<int64_t>(rows_, 1)), 3.0, 20.0)) {
    for (const double cell : map.cells) {
      if (std::isfinite(cell)) largest_ = std::max(largest_, cell);
    }
  }

  drawing::Picture Paint() {
    Text(kMapLeft, 18, "", map_.title);
    PaintCells();
    PaintAxes();
    PaintLegend();
    return {drawing::kPictureWidth, Bottom() + 84, map_.title, std::move(body_)};
  }

 private:
  [[nodiscard]] double Bottom() const { return kMapTop + height_ * static_cast<double>(rows_); }

  void Text(double x, double y, std::string_view css, std::string_view text) {
    body_ += drawing::SvgText(x, y, css, text);
  }

  // The largest of the cells that share a place; NaN and infinity count more than all numbers.
  [[nodiscard]] double At(int64_t row, int64_t column) const {
    double most = 0;
    for (int64_t r = row * map_.rows / rows_; r < (row + 1) * map_.rows / rows_; ++r) {
      for (int64_t c = column * map_.columns / columns_; c < (column + 1) * map_.columns / columns_;
           ++c) {
        const double cell = map_.cells[static_cast<size_t>(r * map_.columns + c)];
        if (!std::isfinite(cell)) return cell;
        most = std::max(most, cell);
      }
    }
    return most;
  }

  // One path for each colour, with neighbours of the same colour as one rectangle.
  void PaintCells() {
    std::array<std::string, drawing::kHeatColours + 1> paths;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t first = 0, next = 0; first < columns_; first = next) {
        const size_t colour = ColourOf(At(row, first), largest_);
        for (next = first + 1; next < columns_ && ColourOf(At(row, next), largest_) == colour;)
          ++next;
        paths[colour] += fmt::format("M{} {}h{}v1H{}z", first, row, next - first, first);
      }
    }
    body_ += fmt::format(
        "<g transform=\"translate({:g} {:g}) scale({:.4f} {:.4f})\" "
        "shape-rendering=\"crispEdges\">",
        kMapLeft, kMapTop, width_, height_);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!paths[i].empty())
        body_ += fmt::format("<path class=\"{}\" d=\"{}\"/>", ClassOf(i), paths[i]);
    }
    body_ += "</g>";
  }

  static std::string ClassOf(size_t colour) {
    return colour == kNotFinite ? "not-finite" : fmt::format("h{}", colour);
  }

  void PaintAxes() {
    body_ +=
        fmt::format("<rect class=\"grid\" x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"/>",
                    kMapLeft, kMapTop, kMapWidth, Bottom() - kMapTop);
    Text(8, kMapTop - 10, "dim", map_.row_label);
    Text(kMapLeft - 8, kMapTop + 10, "end dim", "0");
    if (map_.rows > 1) Text(kMapLeft - 8, Bottom(), "end dim", fmt::format("{}", map_.rows - 1));
    Text(kMapLeft, Bottom() + 16, "dim", "0");
    Text(kMapLeft + kMapWidth / 2, Bottom() + 16, "middle dim", map_.column_label);
    Text(kMapLeft + kMapWidth, Bottom() + 16, "end dim", fmt::format("{}", map_.columns - 1));
  }

  void PaintLegend() {
    const double y = Bottom() + 40;
    for (size_t i = 0; i < drawing::kHeatColours; ++i) {
      body_ += fmt::format("<rect class=\"{}\" x=\"{:g}\" y=\"{:g}\" width=\"40\" height=\"14\"/>",
                           ClassOf(i), kMapLeft + 40 * static_cast<double>(i), y);
    }
    const double end = kMapLeft + 40 * drawing::kHeatColours;
    Text(kMapLeft, y + 30, "dim", "≤ " + drawing::NumberText(largest_ * std::pow(10, -kDecades)));
    Text(end, y + 30, "end dim", drawing::NumberText(largest_));
    body_ +=
        fmt::format("<rect class=\"not-finite\" x=\"{:g}\" y=\"{:g}\" width=\"14\" height=\"14\"/>",
                    end + 24, y);
    Text(end + 44, y + 12, "dim", "not finite");
  }

  const HeatMap& map_;
  int64_t rows_, columns_;
  double width_, height_;
  double largest_ = 0;
  std::string body_;
};

}  // namespace

drawing::Picture DrawHeatMap(const HeatMap& map) { return HeatPainter(map).Paint(); }

}  // namespace rullama::cli
