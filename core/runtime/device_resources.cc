#include "core/runtime/device_resources.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "core/base/checked_math.h"

namespace rullama {
namespace {

void PlaceIn(const OutputPlace& output, Storage& storage) {
  storage.buffer = output.buffer->get();
  storage.offset = output.offset;
}

}  // namespace

DeviceResources::DeviceResources(std::vector<Device*> devices, const WeightSource& weights,
                                 Extents io_extents, WeightNames in_products,
                                 std::shared_ptr<AllocatedBytes> allocated)
    : devices_(std::move(devices)),
      weights_(weights),
      io_extents_(io_extents),
      in_products_(std::move(in_products)),
      arenas_(devices_.size()),
      records_(devices_.size()),
      allocated_bytes_(allocated ? std::move(allocated) : std::make_shared<AllocatedBytes>()),
      own_bytes_(devices_.size()) {
  allocated_bytes_->resize(std::max(allocated_bytes_->size(), devices_.size()));
}

DeviceResources::~DeviceResources() {
  for (size_t i = 0; i < own_bytes_.size(); ++i) (*allocated_bytes_)[i] -= own_bytes_[i];
}

// `counted` has the weights and states, by device, that are part of the needs already.
Status DeviceResources::AddNeed(const PlannedSegment& segment,
                                std::set<std::pair<int, std::string>>& counted,
                                MemoryNeed& need) const {
  for (const Value& value : segment.graph.values) {
    const bool constant = value.lifetime == Lifetime::kConstant;
    if (!constant && value.lifetime != Lifetime::kState) continue;
    const Value& owner = constant ? value : segment.graph.value(value.state);
    const std::pair key(segment.device, owner.name);
    const bool held = constant ? weight_handles_.contains(key) : states_.contains(key);
    if (held || !counted.insert(key).second) continue;
    if (!constant) {
      need.states += owner.type.BytesAt({});
      continue;
    }
    RL_RETURN_IF_ERROR(weights_.Check(value));
    RL_ASSIGN_OR_RETURN(const WeightLayout layout,
                        device(segment.device).LayoutWeight(DescribeWeight(value, {})));
    need.weights += layout.bytes;
    if (layout.bytes > 0) {
      need.weight_elements += static_cast<uint64_t>(value.type.ElementsAt({}));
    }
  }
  const uint64_t arena = segment.memory.arena_bytes;
  if (!HasArena(segment.device, arena)) need.work = std::max(need.work, arena);
  return OkStatus();
}

Result<std::vector<MemoryNeed>> DeviceResources::NeedOf(std::span<const Program> programs) const {
  std::vector<MemoryNeed> needs(devices_.size());
  std::set<std::pair<int, std::string>> counted;
  for (const Program& program : programs) {
    for (const PlannedSegment& segment : program.segments) {
      RL_RETURN_IF_ERROR(AddNeed(segment, counted, needs[static_cast<size_t>(segment.device)]));
    }
  }
  return needs;
}

Status DeviceResources::CheckMemory(const Program& program) {
  RL_ASSIGN_OR_RETURN(const auto needs, NeedOf({&program, 1}));
  for (size_t i = 0; i < needs.size(); ++i) {
    RL_RETURN_IF_ERROR(CheckAndCount(static_cast<int>(i), needs[i]));
  }
  return OkStatus();
}

Status DeviceResources::CheckAndCount(int device, const MemoryNeed& need) {
  const auto i = static_cast<size_t>(device);
  RL_RETURN_IF_ERROR(CheckDeviceMemory(devices_[i]->description(), need, (*allocated_bytes_)[i]));
  (*allocated_bytes_)[i] += need.total();
  own_bytes_[i] += need.total();
  return OkStatus();
}

Status DeviceResources::MakeArenas(const Program& program) {
  std::map<int, const MemoryPlan*> largest;  // by device
  for (const PlannedSegment& segment : program.segments) {
    const MemoryPlan*& memory = largest[segment.device];
    if (memory == nullptr || memory->arena_bytes < segment.memory.arena_bytes) {
      memory = &segment.memory;
    }
  }
  for (const auto& [device, memory] : largest) {
    if (memory->arena_bytes == 0 || HasArena(device, memory->arena_bytes)) continue;
    MemoryNeed need;
    need.work = memory->arena_bytes;
    RL_RETURN_IF_ERROR(CheckAndCount(device, need));
    RL_RETURN_IF_ERROR(FindOrCreateArena(device, *memory).map([](const Arena*) {}));
  }
  return OkStatus();
}

Result<std::vector<Storage>> DeviceResources::AssignStorage(
    int device, const Graph& graph, const MemoryPlan& memory,
    std::span<const std::string> shared_names) {
  const Arena* arena = nullptr;
  if (memory.arena_bytes > 0) {
    RL_ASSIGN_OR_RETURN(arena, FindOrCreateArena(device, memory));
  }
  std::vector<Storage> storage(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    Storage& place = storage[i];
    place.bytes = value.type.BytesAt(graph.MaxExtents());
    switch (value.lifetime) {
      case Lifetime::kConstant: {
        place.lifetime = RL_LIFETIME_CONSTANT;
        RL_ASSIGN_OR_RETURN(place.weight, FindOrLoadWeight(device, value));
        break;
      }
      case Lifetime::kState: {
        place.lifetime = RL_LIFETIME_STATE;
        RL_ASSIGN_OR_RETURN(place.buffer, FindOrCreateState(device, graph.value(value.state)));
        break;
      }
      case Lifetime::kInput: {
        place.lifetime = RL_LIFETIME_INPUT;
        if (std::ranges::find(shared_names, value.name) != shared_names.end()) {
          PlaceIn(output(device, value.name, value.type), place);
          break;
        }
        RL_ASSIGN_OR_RETURN(const DeviceBuffer* buffer, FindOrCreateInput(device, value));
        place.buffer = buffer->get();
        break;
      }
      case Lifetime::kTransient:
        if (arena == nullptr) break;
        place.buffer =
            arena->buffers[static_cast<size_t>(memory.offset[i] / memory.buffer_bytes)].get();
        place.offset = memory.offset[i] % memory.buffer_bytes;
        break;
    }
  }
  RL_RETURN_IF_ERROR(AssignOutputs(device, graph, storage));
  return storage;
}

Status DeviceResources::AssignOutputs(int device, const Graph& graph,
                                      std::vector<Storage>& storage) {
  for (const Output& output : graph.outputs) {
    const Value& value = graph.value(output.value);
    Storage& place = storage[output.value];
    if (value.lifetime != Lifetime::kTransient || place.lifetime == RL_LIFETIME_OUTPUT) {
      return MakeError(ErrorKind::kRuntime, "session.internal",
                       "output '{}' is not a value of its own; copy it first", output.name);
    }
    place.lifetime = RL_LIFETIME_OUTPUT;
    RL_ASSIGN_OR_RETURN(const OutputPlace in, FindOrCreateOutput(device, output.name, value.type));
    PlaceIn(in, place);
  }
  return OkStatus();
}

const DeviceBuffer& DeviceResources::input(int device, const Value& value) const {
  return *inputs_.at({device, value.name, ToString(value.type)});
}

const OutputPlace& DeviceResources::output(int device, const std::string& name,
                                           const TensorType& type) const {
  return outputs_.at({device, name, ToString(type)});
}

bool DeviceResources::HasArena(int device, uint64_t bytes) const {
  return std::ranges::any_of(arenas_[static_cast<size_t>(device)],
                             [bytes](const Arena& arena) { return arena.bytes >= bytes; });
}

Result<const DeviceResources::Arena*> DeviceResources::FindOrCreateArena(int device,
                                                                         const MemoryPlan& memory) {
  auto& arenas = arenas_[static_cast<size_t>(device)];
  // Steps run one after another, so plans can share any arena that is large enough.
  const auto found = std::ranges::find_if(
      arenas, [&](const Arena& arena) { return arena.bytes >= memory.arena_bytes; });
  if (found != arenas.end()) return &*found;
  Arena arena;
  while (arena.bytes < memory.arena_bytes) {
    const uint64_t bytes = std::min(memory.arena_bytes - arena.bytes, memory.buffer_bytes);
    RL_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                        this->device(device).CreateBuffer(bytes, RL_BUFFER_ARENA));
    arena.buffers.push_back(std::move(buffer));
    arena.bytes += bytes;
  }
  bytes_.arenas += arena.bytes;
  return &arenas.emplace_back(std::move(arena));
}

Result<rl_buffer*> DeviceResources::FindOrCreateState(int device, const Value& state) {
  const std::pair key(device, state.name);
  if (const auto found = states_.find(key); found != states_.end()) {
    return found->second.buffer.get();
  }
  const uint64_t bytes = state.type.BytesAt({});
  RL_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                      this->device(device).CreateBuffer(bytes, RL_BUFFER_STATE));
  bytes_.states += bytes;
  return states_.emplace(key, StateBuffer{std::move(buffer), bytes}).first->second.buffer.get();
}

WeightDesc DeviceResources::DescribeWeight(const Value& constant,
                                           std::span<const std::byte> bytes) const {
  const uint32_t uses = in_products_.contains(constant.name) ? RL_WEIGHT_IN_PRODUCTS : 0;
  return WeightDesc{constant.name, constant.type, bytes, uses};
}

Result<rl_weight*> DeviceResources::FindOrLoadWeight(int device, const Value& constant) {
  const std::pair key(device, constant.name);
  if (const auto found = weight_handles_.find(key); found != weight_handles_.end()) {
    return found->second.get();
  }
  RL_ASSIGN_OR_RETURN(const auto bytes, weights_.Bytes(constant));
  const WeightDesc desc = DescribeWeight(constant, bytes);
  Device& owner = this->device(device);
  const auto layout = owner.LayoutWeight(desc);
  auto weight =
      layout ? owner.CreateWeight(desc) : Result<DeviceWeight>(tl::unexpected(layout.error()));
  if (!weight || !layout->in_place) weights_.Release(desc.data);
  if (!weight) return tl::unexpected(std::move(weight).error());
  bytes_.weights += layout->bytes;
  if (layout->in_place) bytes_.weights_in_file += desc.data.size();
  return weight_handles_.emplace(key, *std::move(weight)).first->second.get();
}

Result<const DeviceBuffer*> DeviceResources::CreateIo(int device, uint64_t bytes) {
  bytes = std::max<uint64_t>(bytes, 1);
  RL_ASSIGN_OR_RETURN(DeviceBuffer buffer, this->device(device).CreateBuffer(bytes, RL_BUFFER_IO));
  bytes_.io += bytes;
  return &io_buffers_.emplace_back(std::move(buffer));
}

Result<const DeviceBuffer*> DeviceResources::FindOrCreateInput(int device, const Value& value) {
  const DeviceBuffer*& buffer = inputs_[{device, value.name, ToString(value.type)}];
  if (buffer != nullptr) return buffer;
  RL_ASSIGN_OR_RETURN(buffer, CreateIo(device, value.type.BytesAt(io_extents_)));
  return buffer;
}

Result<OutputPlace> DeviceResources::FindOrCreateOutput(int device, const std::string& name,
                                                        const TensorType& type) {
  // Room for the outputs of a batch of some dozen rows. Reading more of it than a step gives costs
  // less than a second wait.
  constexpr uint64_t kRecordBytes = uint64_t{16} << 10;
  OutputPlace& place = outputs_[{device, name, ToString(type)}];
  if (place.buffer != nullptr) return place;
  const uint64_t bytes = type.BytesAt(io_extents_);
  ResultRecord& record = records_[static_cast<size_t>(device)];
  if (bytes > kRecordBytes - record.used) {
    RL_ASSIGN_OR_RETURN(place.buffer, CreateIo(device, bytes));
    return place;
  }
  if (record.buffer == nullptr) {
    RL_ASSIGN_OR_RETURN(record.buffer, CreateIo(device, kRecordBytes));
  }
  place = {.buffer = record.buffer, .offset = record.used, .in_record = true};
  const uint64_t alignment = this->device(device).description().alignment;
  const auto end = CheckedAlignUp(record.used + bytes, alignment);
  record.used = std::min(end.value_or(kRecordBytes), kRecordBytes);
  return place;
}

Status DeviceResources::ClearState(std::string_view name) {
  constexpr uint64_t kMaxZeros = uint64_t{4} << 20;  // bytes written at once
  for (const auto& [key, state] : states_) {
    if (key.second != name) continue;
    zeros_.resize(
        std::max<size_t>(zeros_.size(), static_cast<size_t>(std::min(state.bytes, kMaxZeros))));
    for (uint64_t offset = 0; offset < state.bytes; offset += zeros_.size()) {
      const uint64_t count = std::min<uint64_t>(zeros_.size(), state.bytes - offset);
      RL_RETURN_IF_ERROR(device(key.first).Write(
          state.buffer, offset, std::span(zeros_).first(static_cast<size_t>(count))));
    }
  }
  return OkStatus();
}

bool DeviceResources::HoldsState(std::string_view name) const {
  return std::ranges::any_of(states_, [=](const auto& item) { return item.first.second == name; });
}

uint64_t DeviceResources::StateBytes(std::string_view name) const {
  const auto found =
      std::ranges::find_if(states_, [=](const auto& item) { return item.first.second == name; });
  return found == states_.end() ? 0 : found->second.bytes;
}

Status DeviceResources::ReadState(std::string_view name, uint64_t offset,
                                  std::span<std::byte> data) {
  std::vector<std::byte> copy;
  bool is_first = true;
  for (const auto& [key, state] : states_) {
    if (key.second != name) continue;
    if (std::exchange(is_first, false)) {
      RL_RETURN_IF_ERROR(device(key.first).Read(state.buffer, offset, data));
      continue;
    }
    copy.resize(data.size());
    RL_RETURN_IF_ERROR(device(key.first).Read(state.buffer, offset, copy));
    if (std::ranges::equal(copy, data)) continue;
    return MakeError(ErrorKind::kRuntime, "snapshot.copies",
                     "two devices hold different rows of state '{}'; let the placement policy keep "
                     "its ops on one device",
                     name);
  }
  return OkStatus();
}

Status DeviceResources::WriteState(std::string_view name, uint64_t offset,
                                   std::span<const std::byte> data) {
  for (const auto& [key, state] : states_) {
    if (key.second != name) continue;
    RL_RETURN_IF_ERROR(device(key.first).Write(state.buffer, offset, data));
  }
  return OkStatus();
}

}  // namespace rullama
