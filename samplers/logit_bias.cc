#include <cstring>
#include <vector>

#include "samplers/steps.h"

namespace rullama::samplers {
namespace {

template <typename T>
ValueId BoundInput(StepContext& context, std::string_view name, DType dtype,
                   const std::vector<T>& values) {
  const TensorType type(dtype, {static_cast<int64_t>(values.size())});
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  context.sampler.bindings.push_back({std::string(name), type, std::move(bytes)});
  return context.builder.Input(name, type);
}

}  // namespace

void AddLogitBias(StepContext& context, Candidates& candidates) {
  std::vector<int32_t> ids;
  std::vector<float> bias;
  for (const auto& [id, value] : context.settings.logit_bias) {
    if (value == 0) continue;
    ids.push_back(static_cast<int32_t>(id));  // ids are inside the vocabulary, so they fit int32
    bias.push_back(static_cast<float>(value));
  }
  if (ids.empty()) return;
  const ValueId id_input = BoundInput(context, kBiasIdsInput, DType::kI32, ids);
  const ValueId bias_input = BoundInput(context, kBiasInput, DType::kF32, bias);
  candidates.logits = context.builder.Add(
      ops::BiasAdd{.logits = candidates.logits, .ids = id_input, .bias = bias_input},
      "sampler.biased");
}

}  // namespace rullama::samplers
