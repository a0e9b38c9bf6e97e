#include "models/gemma4/graph/build_context.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace rullama::gemma4 {

ValueId ModelBuildContext::Constant(const WeightBinding& binding, int64_t first, int64_t count) {
  const std::string key = fmt::format("{}@{}", binding.tensor, first);
  if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  TensorType type(binding.dtype, {count});
  for (size_t axis = 1; axis < binding.dims.size(); ++axis) {
    type.dim(type.rank++) = binding.dims[axis];
  }
  const ValueId value = builder().Constant(binding.tensor, type, first);
  constants_.emplace(key, value);
  return value;
}

ValueId ModelBuildContext::OptionalWeight(std::string_view name) {
  const WeightBinding* binding = weights_.Find(name);
  return binding == nullptr ? kNoValue : Constant(*binding, 0, binding->dims[0]);
}

ValueId ModelBuildContext::Weight(std::string_view name) {
  const ValueId value = OptionalWeight(name);
  RL_CHECK(value != kNoValue);
  return value;
}

ValueId ModelBuildContext::WeightRows(std::string_view name, int64_t first, int64_t count) {
  const WeightBinding* binding = weights_.Find(name);
  RL_CHECK(binding != nullptr && binding->dims.size() == 2);
  return Constant(*binding, first, count);
}

ValueId ModelBuildContext::Synthetic(std::string_view name, const TensorType& type,
                                     std::vector<std::byte> bytes) {
  const std::string key(name);
  if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  const ValueId value = builder().Constant(name, type);
  model_.constants.push_back({.name = key, .type = type, .bytes = std::move(bytes)});
  constants_.emplace(key, value);
  return value;
}

ValueId ModelBuildContext::RopeFactors() {
  constexpr std::string_view kName = "rope_freqs.weight";
  if (const ValueId stored = OptionalWeight(kName); stored != kNoValue) return stored;
  const std::vector<float>& factors = config_.rope_factors;
  std::vector<std::byte> bytes(factors.size() * sizeof(float));
  std::memcpy(bytes.data(), factors.data(), bytes.size());
  return Synthetic(kName, {DType::kF32, {static_cast<int64_t>(factors.size())}}, std::move(bytes));
}

}  // namespace rullama::gemma4
