#include "engine/cut_points.h"

#include <algorithm>

namespace rullama {

std::vector<int64_t> CutPoints(int64_t tokens, int64_t chunk,
                               std::span<const int64_t> turn_borders) {
  std::vector<int64_t> cuts;
  int64_t last = 0;
  while (true) {
    const auto border = std::ranges::lower_bound(turn_borders, last + kLeastTurnRows);
    last = border == turn_borders.end() ? last + chunk : std::min(last + chunk, *border);
    if (last > tokens) return cuts;
    cuts.push_back(last);
  }
}

}  // namespace rullama
