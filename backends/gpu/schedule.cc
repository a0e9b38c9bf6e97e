#include "backends/gpu/schedule.h"

#include <rullama/sdk/shape.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace rullama::gpu {
namespace {

bool Overlap(const std::vector<Range>& a, const std::vector<Range>& b) {
  return std::ranges::any_of(a, [&b](const Range& x) {
    return std::ranges::any_of(b, [&x](const Range& y) { return x.Overlaps(y); });
  });
}

bool Depends(const Dispatch& later, const Dispatch& earlier) {
  return Overlap(later.reads, earlier.writes) || Overlap(later.writes, earlier.writes) ||
         Overlap(later.writes, earlier.reads);
}

}  // namespace

std::vector<uint32_t> LevelsOf(const std::vector<Dispatch>& dispatches) {
  std::vector<uint32_t> levels(dispatches.size(), 0);
  for (size_t i = 0; i < dispatches.size(); ++i) {
    for (size_t j = i; j-- > 0;) {
      if (levels[j] >= levels[i] && Depends(dispatches[i], dispatches[j])) {
        levels[i] = levels[j] + 1;
      }
    }
  }
  return levels;
}

std::vector<uint32_t> OrderOf(const std::vector<Dispatch>& dispatches,
                              const std::vector<uint32_t>& levels) {
  std::vector<uint32_t> order(dispatches.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](uint32_t i) {
    return std::pair(levels[i], !TraitsOf(dispatches[i].pipeline.shader).on_matrix_units);
  });
  return order;
}

std::vector<Dispatch> AtExtents(std::vector<Dispatch> dispatches, int64_t t, int64_t r) {
  std::erase_if(dispatches, [&](Dispatch& dispatch) {
    bool empty = false;
    for (const Dispatch::Extent& extent : dispatch.extents) {
      const uint32_t words[3] = {static_cast<uint32_t>(sdk::DimAt(extent.dim, t, r)), 0, 0};
      std::memcpy(dispatch.push.data() + extent.offset, words, sizeof(words));
      empty = empty || (extent.rows && words[0] == 0);
    }
    return empty;
  });
  return dispatches;
}

std::vector<PipelineKey> KindsOf(const std::vector<Dispatch>& dispatches) {
  std::vector<PipelineKey> kinds;
  kinds.reserve(dispatches.size());
  for (const Dispatch& dispatch : dispatches) kinds.push_back(dispatch.pipeline);
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

}  // namespace rullama::gpu
