#include "backends/gpu/dispatch_builder.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

DispatchBuilder::DispatchBuilder(PlanBuilder& plan, Shader shader, std::vector<uint32_t> constants)
    : plan_(plan) {
  constants.front() = plan.target().Threads(constants.front());
  dispatch_.pipeline = {shader, std::move(constants)};
  dispatch_.op_index = plan.op_index();
}

DispatchBuilder& DispatchBuilder::Reads(uint32_t value) {
  static_cast<void>(ArgumentPacker(plan_, dispatch_).Note(value, dispatch_.reads));
  return *this;
}
DispatchBuilder& DispatchBuilder::Writes(uint32_t value) {
  static_cast<void>(ArgumentPacker(plan_, dispatch_).Note(value, dispatch_.writes));
  return *this;
}

DispatchBuilder& DispatchBuilder::Share(const Dispatch::Shares& shares) {
  dispatch_.shares = shares;
  return *this;
}

void DispatchBuilder::Emit(uint64_t x, uint64_t y, uint64_t z) {
  const uint64_t counts[3] = {x, y, z};
  for (uint32_t axis = 0; axis < 3; ++axis) {
    dispatch_.groups[axis] =
        static_cast<uint32_t>(std::min<uint64_t>(counts[axis], plan_.MaxGroups(axis)));
    if (counts[axis] == 0) return;
  }
  plan_.dispatches().Append(std::move(dispatch_));
}

}  // namespace rullama::gpu
