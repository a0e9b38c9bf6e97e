// A chart of numbers over numbers or over things in a row. Pure function; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "core/drawing/picture.h"
#include "core/drawing/scale.h"

namespace rullama::drawing {

struct ChartPoint {
  double x = 0;  // finite; above 0 on a logarithmic axis
  // On a logarithmic axis, points that are not above 0 are drawn at the lower edge, and those that
  // are not finite at the upper one.
  double y = 0;
  std::string note = {};   // shown where a pointer rests
  bool marked = false;     // drawn as a triangle in the colour of alarms
  std::string label = {};  // a few characters next to the mark
};

struct ChartSeries {
  std::string label;                    // empty: the only series, which needs no name
  std::vector<ChartPoint> points = {};  // by ascending x
  bool joined = true;
  bool has_marks = true;
};

struct ChartLimit {
  double y = 0;
  std::string label;
};

struct Chart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  bool log_x = false;
  bool log_y = false;
  std::vector<ChartSeries> series = {};  // colours repeat after kSeriesColours
  std::vector<ChartLimit> limits = {};
  std::vector<Tick> x_ticks = {};  // empty: round numbers
};

// Names are text of any bytes.
Picture DrawChart(const Chart& chart);

}  // namespace rullama::drawing
