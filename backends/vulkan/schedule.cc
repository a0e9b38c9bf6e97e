#include "backends/vulkan/schedule.h"

#include <algorithm>

namespace rullama::vulkan {
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

}  // namespace rullama::vulkan
