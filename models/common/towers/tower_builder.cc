#include "models/common/towers/tower_builder.h"

#include <fmt/format.h>

#include <cstring>

#include "core/base/check.h"

namespace rullama {
namespace {

Graph EmptyGraph(std::string_view name, int64_t max_tokens) {
  Graph graph;
  graph.name = name;
  graph.max_t = max_tokens;
  return graph;
}

}  // namespace

TowerBuilder::TowerBuilder(std::string_view name, int64_t max_tokens, const ModelWeights& weights)
    : builder_(EmptyGraph(name, max_tokens)), weights_(weights) {}

ValueId TowerBuilder::Constant(std::string_view source, const TensorType& type, int64_t first) {
  const auto [known, added] = constants_.try_emplace({std::string(source), first}, kNoValue);
  if (added) known->second = builder_.Constant(source, type, first);
  return known->second;
}

ValueId TowerBuilder::OptionalWeight(std::string_view name) {
  const WeightBinding* binding = weights_.Find(name);
  if (binding == nullptr) return kNoValue;
  TensorType type;
  type.dtype = binding->dtype;
  for (const int64_t dim : binding->dims) type.dim(type.rank++) = dim;
  return Constant(binding->tensor, type, 0);
}

ValueId TowerBuilder::Weight(std::string_view name) {
  const ValueId value = OptionalWeight(name);
  RL_CHECK(value != kNoValue);
  return value;
}

ValueId TowerBuilder::Matrix(std::string_view name, int64_t rows, int64_t columns, int64_t first) {
  const WeightBinding* binding = weights_.Find(name);
  RL_CHECK(binding != nullptr);
  return Constant(binding->tensor, {binding->dtype, {rows, columns}}, first);
}

ValueId TowerBuilder::Computed(std::string_view name, const TensorType& type,
                               std::span<const float> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  computed_.push_back({.name = std::string(name), .type = type, .bytes = std::move(bytes)});
  return builder_.Constant(name, type);
}

ValueId TowerBuilder::Norm(ValueId x, std::string_view weight, float eps, std::string_view name) {
  return builder_.Add(
      ops::RmsNorm{.x = x, .weight = weight.empty() ? kNoValue : Weight(weight), .eps = eps}, name);
}

ValueId TowerBuilder::LayerNorm(ValueId x, std::string_view layer, float eps,
                                std::string_view name) {
  return builder_.Add(ops::LayerNorm{.x = x,
                                     .weight = Weight(fmt::format("{}.weight", layer)),
                                     .bias = Weight(fmt::format("{}.bias", layer)),
                                     .eps = eps},
                      name);
}

ValueId TowerBuilder::Linear(ValueId x, std::string_view layer, std::string_view name) {
  const ValueId weight = Weight(fmt::format("{}.weight", layer));
  const ValueId bias = OptionalWeight(fmt::format("{}.bias", layer));
  if (bias == kNoValue) return builder_.Add(ops::Linear(x, weight), name);
  const ValueId product = builder_.Add(ops::Linear(x, weight), fmt::format("{}.product", name));
  return builder_.Add(ops::AddVector{.x = product, .vector = bias}, name);
}

Result<TowerGraph> TowerBuilder::Finish(ValueId soft) && {
  builder_.Output(kSoftTokens, soft, RowDemand::kAll);
  RL_ASSIGN_OR_RETURN(Graph graph, std::move(builder_).Finish());
  return TowerGraph{.graph = std::move(graph), .constants = std::move(computed_)};
}

}  // namespace rullama
