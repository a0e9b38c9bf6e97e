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
      inputs_.push_back({.name = value.name,
                         .type = value.type,
                         .common = {},
                         .of_lane = std::vector<KeptInput::Value>(lanes_)});
    }
  }
}

const KeptInput* KeptInputs::Find(std::string_view name) const {
  const auto found = std::ranges::find(inputs_, name, &KeptInput::name);
  return found == inputs_.end() ? nullptr : &*found;
}

Status KeptInputs::Set(std::string_view name, std::span<const std::byte> data, StepLane lane) {
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
  KeptInput::Value& value = lane ? input->of_lane[*lane] : input->common;
  if (!data.empty() && data.size() == value.bytes.size() &&
      std::memcmp(data.data(), value.bytes.data(), data.size()) == 0) {
    return OkStatus();
  }
  value.bytes.assign(data.begin(), data.end());
  value.version = ++versions_;
  return OkStatus();
}

KeptTarget& KeptInputs::TargetOf(const DeviceBuffer& buffer) {
  const auto known = std::ranges::find(targets_, &buffer, &KeptTarget::buffer);
  return known != targets_.end() ? *known : targets_.emplace_back(KeptTarget{.buffer = &buffer});
}

Status KeptInputs::WriteTo(KeptTarget& target, Device& device, const KeptInput::Value& value) {
  if (value.bytes.empty() || value.version == target.version) return OkStatus();
  target.version = 0;  // a write that fails leaves it in doubt
  RL_RETURN_IF_ERROR(device.Write(*target.buffer, 0, value.bytes));
  target.version = value.version;
  return OkStatus();
}

}  // namespace rullama
