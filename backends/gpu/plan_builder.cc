#include "backends/gpu/plan_builder.h"

#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/shape.h>

#include <algorithm>
#include <cstring>

namespace rullama::gpu {
namespace {

constexpr uint64_t kPlaceAlignment = 256;
// With few rows, transients are small, so each gets memory of its own: sharing it would order
// dispatches that have nothing to do with each other.
constexpr int64_t kFewRows = 8;

// Bytes a place of `bytes` takes: shaders may read whole vectors at its end.
uint64_t RoomFor(uint64_t bytes) { return RoundUp(bytes, kPlaceAlignment) + kPlaceAlignment; }

}  // namespace

int64_t RowElements(const rl_value& value) {
  int64_t elements = 1;
  for (uint32_t axis = 1; axis < value.rank; ++axis) elements *= value.dims[axis].constant;
  return elements;
}

int64_t MiddleElements(const rl_value& value) {
  int64_t elements = 1;
  for (uint32_t axis = 1; axis + 1 < value.rank; ++axis) elements *= value.dims[axis].constant;
  return elements;
}

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
    : device_(device), graph_(graph), tuning_(tuning), step_(step), absorbed_(graph.op_count()) {
  FindReaders();
  FindPlaces();
}

int64_t PlanBuilder::Most(const rl_dim& dim) const {
  return sdk::DimAt(dim, graph_.max_t(), graph_.max_r());
}

uint32_t PlanBuilder::InputIndex(uint32_t i) const {
  return i < op().input_count ? op().inputs[i] : RL_NO_VALUE;
}

const DeviceWeight& PlanBuilder::WeightOf(const rl_value& value) {
  return *sdk::WeightOf<DeviceWeight>(value);
}

bool PlanBuilder::ValuesKeepTheirPlaces() const { return graph_.max_t() <= kFewRows; }

bool PlanBuilder::IsPrivate(uint32_t value) const {
  const rl_value& v = graph_.value(value);
  return v.lifetime == RL_LIFETIME_TRANSIENT && v.observed == 0;
}

void PlanBuilder::FindReaders() {
  readers_.resize(graph_.value_count());
  producer_.assign(graph_.value_count(), RL_NO_OP);
  for (uint32_t i = 0; i < graph_.op_count(); ++i) {
    const rl_op& op = graph_.op(i);
    for (uint32_t k = 0; k < op.input_count; ++k) {
      if (op.inputs[k] != RL_NO_VALUE) readers_[op.inputs[k]].push_back(i);
    }
    for (uint32_t k = 0; k < op.result_count; ++k) producer_[op.results[k]] = i;
  }
}

uint32_t PlanBuilder::OnlyReader(uint32_t value) const {
  const bool alone = ValuesKeepTheirPlaces() && IsPrivate(value) && readers_[value].size() == 1;
  return alone ? readers_[value].front() : RL_NO_OP;
}

uint32_t PlanBuilder::HalfCastOf(uint32_t value) const {
  const uint32_t reader = OnlyReader(value);
  if (reader == RL_NO_OP) return RL_NO_OP;
  const rl_op& op = graph_.op(reader);
  const bool half = op.kind == RL_OP_cast && TypeOf(graph_.value(op.results[0])) == DType::kF16;
  return half ? reader : RL_NO_OP;
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
    if (ValuesKeepTheirPlaces() && IsPrivate(i) && value.bytes > 0) {
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

const Prologue* PlanBuilder::FindPrologue() const {
  const auto found = prologues_.find(op_index_);
  return found == prologues_.end() ? nullptr : &found->second;
}

std::optional<Heads> PlanBuilder::TakeHeads(uint32_t value) {
  const auto node = heads_.extract(value);
  return node.empty() ? std::nullopt : std::optional(node.mapped());
}

const HalfRows* PlanBuilder::FindHalf(DeviceAddress address) const {
  const auto found = halves_.find(address);
  return found == halves_.end() ? nullptr : &found->second;
}

void PlanBuilder::Build() {
  constexpr std::array kFamilies = {CompileStructure, CompilePointwise, CompileRows,
                                    CompileMatMul,    CompileMoe,       CompileAttention,
                                    CompileSampling};
  for (op_index_ = 0; op_index_ < graph_.op_count(); ++op_index_) {
    const sdk::OpScope scope(op_index_);
    if (absorbed_[op_index_]) continue;
    const bool compiled =
        std::ranges::any_of(kFamilies, [&](auto family) { return family(*this); });
    if (!compiled) {
      throw sdk::Error(RL_UNSUPPORTED, "op is not supported by this backend", op_index_);
    }
  }
}

}  // namespace rullama::gpu
