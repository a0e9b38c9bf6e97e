#include "core/runtime/kept_inputs.h"

#include <algorithm>
#include <cstring>

namespace rullama {

void KeptInputs::Declare(const Graph& graph) {
  for (const Value& value : graph.values) {
    if (value.lifetime != Lifetime::kInput) continue;
    const auto known = std::ranges::find(inputs_, value.name, &KeptInput::name);
    if (known != inputs_.end()) {
      known->type = value.type;
    } else {
      inputs_.push_back({.name = value.name, .type = value.type, .bytes = {}, .targets = {}});
    }
  }
}

const KeptInput* KeptInputs::Find(std::string_view name) const {
  const auto found = std::ranges::find(inputs_, name, &KeptInput::name);
  return found == inputs_.end() ? nullptr : &*found;
}

Status KeptInputs::Set(std::string_view name, std::span<const std::byte> data) {
  const auto input = std::ranges::find(inputs_, name, &KeptInput::name);
  if (input == inputs_.end()) {
    return MakeError(ErrorKind::kRuntime, "session.internal", "no graph has an input '{}'", name);
  }
  const bool fits = input->type.rows().IsConstant() ? data.size() == input->type.BytesAt({})
                                                    : data.size() <= input->type.BytesAt(largest_);
  if (!fits) {
    return MakeError(ErrorKind::kRuntime, "session.internal", "input '{}' is {}, found {} bytes",
                     name, ToString(input->type), data.size());
  }
  if (!data.empty() && data.size() == input->bytes.size() &&
      std::memcmp(data.data(), input->bytes.data(), data.size()) == 0) {
    return OkStatus();
  }
  input->bytes.assign(data.begin(), data.end());
  for (const KeptInput::Target& target : input->targets) {
    if (Status written = target.device->Write(*target.buffer, 0, input->bytes); !written) {
      input->bytes.clear();  // the targets differ, so the same value has to be written again
      return written;
    }
  }
  return OkStatus();
}

Status KeptInputs::AddTarget(const KeptInput& input, Device& device, const DeviceBuffer& buffer) {
  KeptInput& kept = inputs_[static_cast<size_t>(&input - inputs_.data())];
  if (std::ranges::find(kept.targets, &buffer, &KeptInput::Target::buffer) != kept.targets.end()) {
    return OkStatus();
  }
  kept.targets.push_back({&device, &buffer});
  return kept.bytes.empty() ? OkStatus() : device.Write(buffer, 0, kept.bytes);
}

}  // namespace rullama
