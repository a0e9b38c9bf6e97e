#include "models/common/graph/tensor_table.h"

#include <fmt/format.h>

#include <utility>

namespace rullama {

LayerTable::LayerTable(std::vector<TensorSpec>& specs, int64_t index)
    : LayerTable(specs, fmt::format("blk.{}.", index)) {}

LayerTable::LayerTable(std::vector<TensorSpec>& specs, std::string prefix)
    : specs_(specs), prefix_(std::move(prefix)) {}

void LayerTable::Add(std::string_view name, std::vector<int64_t> dims, Presence presence,
                     std::initializer_list<std::string_view> alternatives) {
  TensorSpec spec{.name = prefix_ + std::string(name),
                  .alternatives = {},
                  .dims = std::move(dims),
                  .presence = presence};
  spec.alternatives.reserve(alternatives.size());
  for (const std::string_view alternative : alternatives) {
    spec.alternatives.push_back(prefix_ + std::string(alternative));
  }
  specs_.push_back(std::move(spec));
}

void LayerTable::AddRenamed(std::string_view name, std::vector<int64_t> dims,
                            std::string_view other) {
  Add(name, std::move(dims));
  specs_.back().in_file = prefix_ + std::string(other);
}

void LayerTable::AddFeedForward(int64_t width, int64_t ffn_width) {
  Add("ffn_norm.weight", {width}, Presence::kRequired, {"ffn_pre_norm.weight"});
  Add("ffn_gate.weight", {ffn_width, width});
  Add("ffn_up.weight", {ffn_width, width});
  Add("ffn_down.weight", {width, ffn_width});
  Add("post_ffw_norm.weight", {width}, Presence::kRequired, {"ffn_post_norm.weight"});
}

ModelWeights ModelWeights::Synthetic(const std::vector<TensorSpec>& specs,
                                     const std::function<DType(const TensorSpec&)>& dtype_of) {
  ModelWeights weights;
  for (const TensorSpec& spec : specs) {
    if (spec.presence != Presence::kRequired && spec.presence != Presence::kUsual) continue;
    const DType dtype = spec.is_vector() ? DType::kF32 : dtype_of(spec);
    weights.bindings_[spec.name] = {.tensor = spec.name, .dtype = dtype, .dims = spec.dims};
  }
  return weights;
}

void ModelWeights::PrefixTensors(std::string_view prefix) {
  for (auto& [name, binding] : bindings_) binding.tensor.insert(0, prefix);
}

const WeightBinding* ModelWeights::Find(std::string_view name) const {
  const auto found = bindings_.find(name);
  return found == bindings_.end() ? nullptr : &found->second;
}

}  // namespace rullama
