#include "backends/gpu/plan_builder.h"

#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/shape.h>

#include <algorithm>
#include <cstring>

namespace rullama::gpu {
namespace {

constexpr uint64_t kPlaceAlignment = 256;

// Bytes a place of `bytes` takes: shaders may read whole vectors at its end.
uint64_t RoomFor(uint64_t bytes) { return RoundUp(bytes, kPlaceAlignment) + kPlaceAlignment; }

}  // namespace

// ---- one dispatch -------------------------------------------------------------------------------

DispatchBuilder::DispatchBuilder(PlanBuilder& plan, Shader shader, std::vector<uint32_t> constants)
    : plan_(plan) {
  constants.front() = plan.tuning().Threads(constants.front());
  dispatch_.pipeline = {shader, std::move(constants)};
  dispatch_.op_index = plan.op_index();
  Pointer(plan.step());
}

void DispatchBuilder::Put(const void* data, uint32_t bytes) {
  const uint32_t room = plan_.FollowsPointers() ? Dispatch::kPushBytes : Dispatch::kMostBytes;
  if (dispatch_.push_bytes + bytes > room) {
    throw sdk::Error(RL_INTERNAL, "push constants of a dispatch exceed their room");
  }
  std::memcpy(dispatch_.push.data() + dispatch_.push_bytes, data, bytes);
  dispatch_.push_bytes += bytes;
}

DispatchBuilder& DispatchBuilder::Note(uint32_t value, bool write) {
  if (value == RL_NO_VALUE) return *this;
  const bool constant = plan_.graph().value(value).lifetime == RL_LIFETIME_CONSTANT;
  if (!constant) (write ? dispatch_.writes : dispatch_.reads).push_back(plan_.Place(value));
  return *this;
}
DispatchBuilder& DispatchBuilder::Read(uint32_t value) {
  return Note(value, false).Pointer(plan_.AddressOf(value));
}
DispatchBuilder& DispatchBuilder::Write(uint32_t value) {
  return Note(value, true).Pointer(plan_.AddressOf(value));
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
  if (plan_.FollowsPointers()) return Pointer(plan_.Constant(record));
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

void DispatchBuilder::Go(uint64_t x, uint64_t y, uint64_t z) {
  const uint64_t counts[3] = {x, y, z};
  for (uint32_t axis = 0; axis < 3; ++axis) {
    dispatch_.groups[axis] =
        static_cast<uint32_t>(std::min<uint64_t>(counts[axis], plan_.MostGroups(axis)));
    if (counts[axis] == 0) return;
  }
  plan_.Append(std::move(dispatch_));
}

// ---- the graph ----------------------------------------------------------------------------------

PlanBuilder::PlanBuilder(PlanDevice& device, const sdk::GraphView& graph, const Tuning& tuning,
                         DeviceAddress step)
    : device_(device), graph_(graph), tuning_(tuning), step_(step) {
  FindPlaces();
}

int64_t PlanBuilder::Most(const rl_dim& dim) const {
  return sdk::DimAt(dim, graph_.max_t(), graph_.max_r());
}

const DeviceWeight& PlanBuilder::WeightOf(const rl_value& value) {
  return *sdk::WeightOf<DeviceWeight>(value);
}

void PlanBuilder::FindPlaces() {
  places_.resize(graph_.value_count());
  moved_.assign(graph_.value_count(), false);
  uint64_t own_bytes = 0;
  for (uint32_t i = 0; i < graph_.value_count(); ++i) {
    const rl_value& value = graph_.value(i);
    if (value.lifetime == RL_LIFETIME_CONSTANT) {
      const DeviceWeight& weight = WeightOf(value);
      places_[i] = {weight.address(), weight.address() + weight.shape().bytes()};
    } else if (value.buffer != nullptr) {
      const DeviceAddress begin = sdk::BufferOf<DeviceBuffer>(value)->address() + value.offset;
      places_[i] = {begin, begin + value.bytes};
    }
    if (TransientsAreUnaliased(graph_) && IsPrivate(value) && value.bytes > 0) {
      moved_[i] = true;
      own_bytes += RoomFor(value.bytes);
    }
  }
  if (own_bytes == 0) return;
  DeviceAddress at = NewScratch(own_bytes).address;
  for (uint32_t i = 0; i < graph_.value_count(); ++i) {
    if (!moved_[i]) continue;
    const uint64_t bytes = graph_.value(i).bytes;
    places_[i] = {at, at + bytes};
    at += RoomFor(bytes);
  }
}

void PlanBuilder::Alias(uint32_t result, uint32_t operand, uint64_t offset) {
  const DeviceAddress begin = places_[operand].begin + offset;
  places_[result] = {begin, begin + graph_.value(result).bytes};
}

Scratch PlanBuilder::NewScratch(uint64_t bytes) {
  workspace_bytes_ += bytes;
  return {device_.NewMemory(bytes), bytes};
}

Scratch PlanBuilder::Take(uint64_t bytes) {
  const auto found = free_.lower_bound(bytes);
  if (found == free_.end()) return NewScratch(bytes);
  const Scratch scratch{found->second, found->first};
  free_.erase(found);
  return scratch;
}

DeviceAddress PlanBuilder::Constant(std::span<const std::byte> bytes) {
  const Scratch scratch = NewScratch(std::max<uint64_t>(bytes.size(), 1));
  device_.Fill(scratch.address, bytes);
  return scratch.address;
}

// What is written is no longer what an f16 form was made from.
void PlanBuilder::Append(Dispatch dispatch) {
  for (const Range& range : dispatch.writes) {
    std::erase_if(halves_, [&](const auto& half) {
      if (half.first < range.begin || half.first >= range.end) return false;
      GiveBack(half.second.rows);
      GiveBack(half.second.factors);
      return true;
    });
  }
  dispatches_.push_back(std::move(dispatch));
}

const HalfRows* PlanBuilder::FindHalf(DeviceAddress address) const {
  const auto found = halves_.find(address);
  return found == halves_.end() ? nullptr : &found->second;
}

void PlanBuilder::Build() {
  constexpr std::array kFamilies = {CompileStructure, CompilePointwise, CompileRows,
                                    CompileMatMul,    CompileMoe,       CompileAttention,
                                    CompileSampling};
  const FusedGraph fused = Fuse(graph_, tuning_);
  for (const FusedNode& node : fused.nodes) {
    node_ = &node;
    const sdk::OpScope scope(node.op);
    const bool compiled =
        std::ranges::any_of(kFamilies, [&](auto family) { return family(*this); });
    if (!compiled) {
      throw sdk::Error(RL_UNSUPPORTED, "op is not supported by this backend", node.op);
    }
  }
  node_ = nullptr;
}

}  // namespace rullama::gpu
