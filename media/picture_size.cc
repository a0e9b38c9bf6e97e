#include "media/picture_size.h"

#include <algorithm>
#include <cmath>

namespace rullama {
namespace {

// Blocks along the long side of a picture that is less than one block wide: the whole part of its
// aspect ratio, at most the budget.
uint32_t BlocksOfStrip(double long_side, double short_side, double budget) {
  return static_cast<uint32_t>(std::min(std::floor(long_side / short_side), budget));
}

}  // namespace

uint32_t DefaultImageTokens(uint32_t width, uint32_t height) {
  constexpr uint64_t kBlockPixels = 48 * 48;
  const uint64_t pixels = uint64_t{width} * height;
  for (const uint32_t budget : kImageTokenBudgets) {
    const bool holds_all = budget * kBlockPixels >= pixels;
    if (holds_all || budget == kDefaultImageTokens) return budget;
  }
  return kDefaultImageTokens;
}

Result<BlockGrid> FitToBudget(uint32_t width, uint32_t height, uint32_t budget, uint32_t side) {
  const double w = width;
  const double h = height;
  const double most = budget;
  const double factor = std::sqrt(most * side * side / (w * h));
  const double columns = std::floor(factor * w / side);
  const double rows = std::floor(factor * h / side);
  BlockGrid grid{static_cast<uint32_t>(std::min(columns, most)),
                 static_cast<uint32_t>(std::min(rows, most))};
  if (columns > 0 && rows == 0) grid = {BlocksOfStrip(w, h, budget), 1};
  if (columns == 0 && rows > 0) grid = {1, BlocksOfStrip(h, w, budget)};
  const uint64_t tokens = uint64_t{grid.columns} * grid.rows;
  if (tokens == 0 || tokens > budget) {
    return MakeError(ErrorKind::kUsage, "media.shape",
                     "a picture of {} x {} pixels gives {} x {} blocks, expected 1 to {} blocks; "
                     "cut it or choose another number of image tokens",
                     width, height, grid.columns, grid.rows, budget);
  }
  return grid;
}

}  // namespace rullama
