#include "backends/gpu/dispatch_list.h"

#include <algorithm>
#include <utility>

namespace rullama::gpu {

template <typename Condition>
void DispatchList::ForgetHalves(Condition condition) {
  std::erase_if(halves_, [&](const KeptHalf& kept) {
    if (!condition(kept)) return false;
    scratch_.GiveBack(kept.half.rows);
    scratch_.GiveBack(kept.half.factors);
    return true;
  });
}

void DispatchList::BeginOp(uint32_t op) {
  ForgetHalves([op](const KeptHalf& kept) { return kept.last_op < op; });
}

void DispatchList::Append(Dispatch dispatch) {
  for (const Range& range : dispatch.writes) {
    ForgetHalves([&](const KeptHalf& kept) { return kept.source.Overlaps(range); });
  }
  dispatches_.push_back(std::move(dispatch));
}

const HalfRows* DispatchList::FindHalf(const Range& source, uint32_t parts) const {
  const auto found = std::ranges::find_if(halves_, [&](const KeptHalf& kept) {
    return kept.source.begin == source.begin && kept.source.end == source.end &&
           kept.half.parts == parts;
  });
  return found == halves_.end() ? nullptr : &found->half;
}

}  // namespace rullama::gpu
