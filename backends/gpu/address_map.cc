#include "backends/gpu/address_map.h"

#include "backends/gpu/graph_facts.h"
#include "backends/gpu/weights.h"

namespace rullama::gpu {
namespace {

// Bytes reserved for a value of `bytes`: shaders may read whole vectors at its end.
uint64_t ReservedBytes(uint64_t bytes) {
  constexpr uint64_t kAlignment = 256;
  return RoundUp(bytes, kAlignment) + kAlignment;
}

Range HostRange(const rl_value& value) {
  if (value.lifetime == RL_LIFETIME_CONSTANT) {
    const DeviceWeight& weight = *sdk::WeightOf<DeviceWeight>(value);
    return {weight.address(), weight.address() + weight.shape().bytes()};
  }
  if (value.buffer == nullptr) return {};
  const DeviceAddress begin = sdk::BufferOf<DeviceBuffer>(value)->address() + value.offset;
  return {begin, begin + value.bytes};
}

}  // namespace

AddressMap::AddressMap(const sdk::GraphView& graph, const PlanSteps& steps, ScratchPool& scratch)
    : graph_(graph) {
  std::vector<uint32_t> own;
  uint64_t own_bytes = 0;
  for (uint32_t i = 0; i < graph.value_count(); ++i) {
    const rl_value& value = graph.value(i);
    ranges_.push_back(HostRange(value));
    if (!steps.LeaveTransientsUnaliased() || !IsPrivate(value) || value.bytes == 0) continue;
    own.push_back(i);
    own_bytes += ReservedBytes(value.bytes);
  }
  if (own.empty()) return;
  DeviceAddress address = scratch.New(own_bytes).address;
  for (const uint32_t i : own) {
    const uint64_t bytes = graph.value(i).bytes;
    ranges_[i] = {address, address + bytes};
    address += ReservedBytes(bytes);
  }
}

void AddressMap::Alias(uint32_t result, uint32_t operand, uint64_t offset) {
  const DeviceAddress begin = ranges_[operand].begin + offset;
  ranges_[result] = {begin, begin + graph_.value(result).bytes};
}

}  // namespace rullama::gpu
