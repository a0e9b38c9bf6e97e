// A matrix as a map of colours, on a logarithmic scale. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/drawing/picture.h"

namespace rullama::cli {

struct HeatMap {
  std::string title = {};
  std::string row_label = {};
  std::string column_label = {};
  int64_t rows = 0;
  int64_t columns = 0;
  std::span<const double> cells = {};  // rows x columns, not negative; may be infinite or NaN
};

// Neighbours share a cell of the picture where there are more than it has places; the cell shows
// the largest of them. Colours span the four decades below the largest finite cell.
drawing::Picture DrawHeatMap(const HeatMap& map);

}  // namespace rullama::cli
