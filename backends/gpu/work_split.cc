#include "backends/gpu/work_split.h"

#include <algorithm>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

uint64_t BytesOf(const Dispatch& dispatch) { return dispatch.shares.rows * dispatch.shares.bytes; }

// Totals of the dispatches of one level.
struct Level {
  uint64_t others = 0;  // workgroups whose work cannot be split
  uint64_t bytes = 0;   // weight bytes of the dispatches that can be split
  uint64_t given = 0;   // the part of `bytes` whose workgroups are assigned
};

}  // namespace

void Balance(std::vector<Dispatch>& dispatches, std::span<const uint32_t> levels,
             const Target& target, bool row_by_row) {
  if (dispatches.empty()) return;
  std::vector<Level> all(std::ranges::max(levels) + 1);
  for (size_t i = 0; i < dispatches.size(); ++i) {
    const auto& groups = dispatches[i].groups;
    Level& level = all[levels[i]];
    level.bytes += BytesOf(dispatches[i]);
    const Dispatch::Shares& shares = dispatches[i].shares;
    const uint64_t fixed = shares.rows == 0 ? groups[0] : shares.first_groups;
    if (!row_by_row) level.others += fixed * groups[1] * groups[2];
  }
  for (size_t i = 0; i < dispatches.size(); ++i) {
    const uint64_t rows = dispatches[i].shares.rows;
    if (rows == 0) continue;
    Level& level = all[levels[i]];
    // Products get at least half of the workgroups.
    const uint64_t groups = target.prefers.RowGroups();
    const uint64_t free = groups - std::min<uint64_t>(level.others, groups / 2);
    const uint64_t begin = free * level.given / level.bytes;
    level.given += BytesOf(dispatches[i]);
    const uint64_t end = free * level.given / level.bytes;
    Divide(dispatches[i], target, std::clamp<uint64_t>(end - begin, 1, rows));
  }
}

}  // namespace rullama::gpu
