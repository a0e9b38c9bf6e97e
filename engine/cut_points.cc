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

bool IsSnapshotPoint(std::span<const int64_t> cuts, int64_t position, int64_t chunk) {
  constexpr size_t kChunksBetween = 8;
  const auto at = static_cast<size_t>(std::ranges::lower_bound(cuts, position) - cuts.begin());
  const int64_t before = at == 0 ? 0 : cuts[at - 1];
  return position - before < chunk || at + 1 == cuts.size() || (at + 1) % kChunksBetween == 0;
}

}  // namespace rullama
