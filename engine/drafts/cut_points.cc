#include "engine/drafts/cut_points.h"

#include <algorithm>
#include <limits>

namespace rullama {
namespace {

// The cut after `last` that media ask for, where `next` would be one without them.
int64_t CutForMedia(int64_t last, int64_t next, std::span<const SoftRows> media) {
  for (const SoftRows& medium : media) {
    if (medium.end() <= last) continue;
    if (medium.end() <= next) return medium.end();
    const bool inside = medium.first < next;
    if (!inside || !medium.see_each_other) return next;
    return medium.first > last ? medium.first : medium.end();
  }
  return next;
}

// The first border at `position` or after it; none is at the greatest number.
int64_t FirstFrom(std::span<const int64_t> borders, int64_t position) {
  const auto border = std::ranges::lower_bound(borders, position);
  return border == borders.end() ? std::numeric_limits<int64_t>::max() : *border;
}

}  // namespace

std::vector<int64_t> CutPoints(int64_t tokens, int64_t chunk, const PromptBorders& borders,
                               std::span<const SoftRows> media) {
  std::vector<int64_t> cuts;
  int64_t last = 0;
  int64_t last_turn = 0;  // the last cut that is not before a passage
  while (true) {
    const int64_t turn = FirstFrom(borders.turns, std::max(last_turn + kMinTurnRows, last + 1));
    const int64_t passage = FirstFrom(borders.passages, last + kMinTurnRows);
    const int64_t next = std::min({last + chunk, turn, passage});
    last = CutForMedia(last, next, media);
    if (last != passage) last_turn = last;
    if (last > tokens) return cuts;
    cuts.push_back(last);
  }
}

bool IsSnapshotPoint(std::span<const int64_t> cuts, int64_t position, int64_t chunk) {
  constexpr size_t kChunksBetween = 8;
  const auto at = static_cast<size_t>(std::ranges::lower_bound(cuts, position) - cuts.begin());
  const int64_t before = at == 0 ? 0 : cuts[at - 1];
  const bool ends_last_chunk = cuts.back() - position < chunk;
  return position - before < chunk || ends_last_chunk || (at + 1) % kChunksBetween == 0;
}

}  // namespace rullama
