#include "backends/gpu/dispatch_list.h"

#include <utility>

namespace rullama::gpu {

void DispatchList::Append(Dispatch dispatch) {
  for (const Range& range : dispatch.writes) {
    std::erase_if(halves_, [&](const auto& half) {
      if (half.first < range.begin || half.first >= range.end) return false;
      scratch_.GiveBack(half.second.rows);
      scratch_.GiveBack(half.second.factors);
      return true;
    });
  }
  dispatches_.push_back(std::move(dispatch));
}

const HalfRows* DispatchList::FindHalf(DeviceAddress address) const {
  const auto found = halves_.find(address);
  return found == halves_.end() ? nullptr : &found->second;
}

}  // namespace rullama::gpu
