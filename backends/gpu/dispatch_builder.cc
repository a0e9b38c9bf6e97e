#include "backends/gpu/dispatch_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

DispatchBuilder::DispatchBuilder(PlanBuilder& plan, Shader shader, std::vector<uint32_t> constants)
    : plan_(plan) {
  constants.front() = plan.tuning().Threads(constants.front());
  dispatch_.pipeline = {shader, std::move(constants)};
  dispatch_.op_index = plan.op_index();
  Pointer(plan.step());
}

void DispatchBuilder::Put(const void* data, uint32_t bytes) {
  const uint32_t room = plan_.FollowsPointers() ? Dispatch::kPushBytes : Dispatch::kMaxBytes;
  if (dispatch_.push_bytes + bytes > room) {
    throw sdk::Error(RL_INTERNAL, "push constants of a dispatch exceed their room");
  }
  std::memcpy(dispatch_.push.data() + dispatch_.push_bytes, data, bytes);
  dispatch_.push_bytes += bytes;
}

DispatchBuilder& DispatchBuilder::Note(uint32_t value, bool write) {
  if (value == RL_NO_VALUE) return *this;
  const bool constant = plan_.graph().value(value).lifetime == RL_LIFETIME_CONSTANT;
  if (!constant)
    (write ? dispatch_.writes : dispatch_.reads).push_back(plan_.addresses().RangeOf(value));
  return *this;
}
DispatchBuilder& DispatchBuilder::Read(uint32_t value) {
  return Note(value, false).Pointer(plan_.addresses().AddressOf(value));
}
DispatchBuilder& DispatchBuilder::Write(uint32_t value) {
  return Note(value, true).Pointer(plan_.addresses().AddressOf(value));
}
DispatchBuilder& DispatchBuilder::Read(const Scratch& scratch) {
  dispatch_.reads.push_back({scratch.address, scratch.address + scratch.bytes});
  return Pointer(scratch.address);
}
DispatchBuilder& DispatchBuilder::Write(const Scratch& scratch) {
  dispatch_.writes.push_back({scratch.address, scratch.address + scratch.bytes});
  return Pointer(scratch.address);
}
DispatchBuilder& DispatchBuilder::Pointer(DeviceAddress address) {
  dispatch_.pointers.push_back(dispatch_.push_bytes);
  Put(&address, sizeof(address));
  return *this;
}

DispatchBuilder& DispatchBuilder::Record(std::span<const std::byte> record,
                                         std::initializer_list<uint32_t> pointers) {
  if (plan_.FollowsPointers()) return Pointer(plan_.scratch().Constant(record));
  for (const uint32_t at : pointers) dispatch_.pointers.push_back(dispatch_.push_bytes + at);
  Put(record.data(), static_cast<uint32_t>(record.size()));
  return *this;
}

DispatchBuilder& DispatchBuilder::Rows(const rl_dim& dim, int64_t times) {
  Extent({dim.constant * times, static_cast<int32_t>(dim.t * times),
          static_cast<int32_t>(dim.r * times)});
  dispatch_.extents.back().rows = true;
  return *this;
}

DispatchBuilder& DispatchBuilder::Extent(const rl_dim& dim) {
  dispatch_.extents.push_back({dispatch_.push_bytes, dim, false});
  const uint32_t words[3] = {static_cast<uint32_t>(dim.constant), static_cast<uint32_t>(dim.t),
                             static_cast<uint32_t>(dim.r)};
  Put(words, sizeof(words));
  return *this;
}

DispatchBuilder& DispatchBuilder::U32(int64_t value) {
  const auto word = static_cast<uint32_t>(value);
  Put(&word, sizeof(word));
  return *this;
}
DispatchBuilder& DispatchBuilder::F32(float value) {
  Put(&value, sizeof(value));
  return *this;
}
DispatchBuilder& DispatchBuilder::Align(uint32_t bytes) {
  while (dispatch_.push_bytes % bytes != 0) U32(0);
  return *this;
}

DispatchBuilder& DispatchBuilder::Share(Dispatch::Shares shares, bool division_follows) {
  dispatch_.shares = shares;
  if (division_follows) dispatch_.shares.offset = dispatch_.push_bytes;
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
