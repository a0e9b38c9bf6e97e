#include "conformance/program.h"

#include <algorithm>
#include <utility>

#include "core/ir/weight_uses.h"

namespace rullama::conformance {
namespace {

constexpr uint64_t kGuardBytes = 256;
constexpr std::byte kGuardByte{0xA5};

Error MemoryError(std::string message) {
  return {ErrorKind::kBackend, "conformance.memory", std::move(message)};
}

bool IsOutput(const Graph& graph, ValueId id) {
  return std::ranges::find(graph.outputs, id, &Output::value) != graph.outputs.end();
}

}  // namespace

Result<std::unique_ptr<Program>> Program::Create(Device& device, const Case& test, bool observed,
                                                 RecordTimes record_times) {
  std::unique_ptr<Program> program(new Program(device, test.graph));
  RL_RETURN_IF_ERROR(program->Allocate(test, observed));
  RL_ASSIGN_OR_RETURN(program->plan_, device.Compile(test.graph, program->storage_, record_times));
  return program;
}

Status Program::Allocate(const Case& test, bool observed) {
  const uint64_t alignment = device_.description().alignment;
  guard_ = std::max(kGuardBytes, alignment);
  storage_.resize(graph_.values.size());
  WeightNames in_products;
  AddWeightsInProducts(graph_, in_products);
  for (ValueId id = 0; id < graph_.values.size(); ++id) {
    const Value& value = graph_.value(id);
    Storage& storage = storage_[id];
    storage.bytes = value.type.BytesAt(graph_.MaxExtents());
    storage.observed = observed && value.lifetime == Lifetime::kTransient;
    if (value.lifetime == Lifetime::kConstant) {
      storage.lifetime = RL_LIFETIME_CONSTANT;
      RL_ASSIGN_OR_RETURN(const auto bytes, Constant(test, value.source));
      const uint32_t uses = in_products.contains(value.name) ? RL_WEIGHT_IN_PRODUCTS : 0;
      const WeightDesc desc{value.source, value.type, bytes, uses};
      // The host asks first and takes the answer apart.
      RL_ASSIGN_OR_RETURN([[maybe_unused]] const WeightLayout layout, device_.LayoutWeight(desc));
      RL_ASSIGN_OR_RETURN(DeviceWeight weight, device_.CreateWeight(desc));
      storage.weight = weight.get();
      weights_.push_back(std::move(weight));
      continue;
    }
    const bool state = value.lifetime == Lifetime::kState;
    const ValueId home = state ? value.state : id;
    rl_buffer_usage usage = RL_BUFFER_ARENA;
    storage.lifetime = RL_LIFETIME_TRANSIENT;
    if (state) {
      usage = RL_BUFFER_STATE;
      storage.lifetime = RL_LIFETIME_STATE;
    } else if (value.lifetime == Lifetime::kInput || IsOutput(graph_, id)) {
      usage = RL_BUFFER_IO;
      storage.lifetime =
          value.lifetime == Lifetime::kInput ? RL_LIFETIME_INPUT : RL_LIFETIME_OUTPUT;
    }
    if (!places_.contains(home)) {
      RL_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                          device_.CreateBuffer(storage.bytes + 2 * guard_, usage));
      Place& place = places_[home];
      place = {std::move(buffer), storage.bytes};
      RL_RETURN_IF_ERROR(FillGuards(place));
    }
    storage.buffer = places_.at(home).buffer.get();
    storage.offset = guard_;
  }
  return OkStatus();
}

Result<std::span<const std::byte>> Program::Constant(const Case& test, const std::string& source) {
  GuardedMemory& memory = constants_[source];
  if (memory.bytes().empty()) {
    const Bytes& bytes = test.data.at(source);
    RL_ASSIGN_OR_RETURN(memory, GuardedMemory::Create(
                                    bytes.size(), fmt::format("the data of weight '{}'", source)));
    std::ranges::copy(bytes, memory.bytes().begin());
    memory.Seal();
  }
  return memory.bytes();
}

Result<std::span<std::byte>> Program::Staging(size_t size) {
  if (staging_.bytes().size() < size) {
    RL_ASSIGN_OR_RETURN(staging_, GuardedMemory::Create(size, "the host's bytes of a copy"));
  }
  return staging_.Last(size);
}

Status Program::FillGuards(const Place& place) {
  const Bytes guard(guard_, kGuardByte);
  RL_RETURN_IF_ERROR(device_.Write(place.buffer, 0, guard));
  return device_.Write(place.buffer, guard_ + place.bytes, guard);
}

Status Program::Poison(uint8_t byte) {
  for (const auto& [id, place] : places_) {
    if (graph_.value(id).lifetime != Lifetime::kTransient) continue;
    const Bytes bytes(place.bytes, std::byte{byte});
    RL_RETURN_IF_ERROR(device_.Write(place.buffer, guard_, bytes));
  }
  return OkStatus();
}

Status Program::Bind(std::string_view name, std::span<const std::byte> bytes) {
  const Place& place = places_.at(graph_.Find(name));
  RL_ASSIGN_OR_RETURN(const auto staging, Staging(bytes.size()));
  std::ranges::copy(bytes, staging.begin());
  return device_.Write(place.buffer, guard_, staging);
}

Status Program::BindAll(const Case& test) {
  for (const auto& [name, bytes] : test.data) {
    const ValueId id = graph_.Find(name);
    if (id == kNoValue || graph_.value(id).lifetime == Lifetime::kConstant) continue;
    RL_RETURN_IF_ERROR(Bind(name, bytes));
  }
  return OkStatus();
}

Status Program::Run(const Extents& extents) {
  RL_RETURN_IF_ERROR(device_.Execute(plan_, extents, &graph_));
  return device_.Wait();
}

Result<Bytes> Program::Read(std::string_view name, const Extents& extents) {
  const ValueId id = graph_.Find(name);
  RL_ASSIGN_OR_RETURN(const auto staging, Staging(graph_.type(id).BytesAt(extents)));
  RL_RETURN_IF_ERROR(device_.Read(places_.at(id).buffer, guard_, staging));
  return Bytes(staging.begin(), staging.end());
}

Status Program::CheckInputs(const Case& test) {
  for (const auto& [name, bytes] : test.data) {
    const ValueId id = graph_.Find(name);
    if (id == kNoValue || graph_.value(id).lifetime != Lifetime::kInput) continue;
    RL_ASSIGN_OR_RETURN(const Bytes found, Read(name, test.extents));
    if (found == bytes) continue;
    return tl::unexpected(MemoryError(fmt::format("input '{}' was written", name)));
  }
  return OkStatus();
}

Status Program::CheckGuards() {
  for (const auto& [id, place] : places_) {
    for (const uint64_t at : {uint64_t{0}, guard_ + place.bytes}) {
      Bytes guard(guard_);
      RL_RETURN_IF_ERROR(device_.Read(place.buffer, at, guard));
      const auto changed =
          std::ranges::find_if_not(guard, [](std::byte byte) { return byte == kGuardByte; });
      if (changed == guard.end()) continue;
      return tl::unexpected(MemoryError(fmt::format(
          "memory {} '{}' was written, {} bytes away from it", at == 0 ? "before" : "after",
          graph_.value(id).name, at == 0 ? guard.end() - changed : changed - guard.begin() + 1)));
    }
  }
  return OkStatus();
}

}  // namespace rullama::conformance
