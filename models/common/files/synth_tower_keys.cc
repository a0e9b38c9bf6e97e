#include "models/common/files/synth_tower_keys.h"

#include <fmt/format.h>

#include <array>

namespace rullama {

Status WriteTowerKeys(const TowerKeys& keys, GgufWriter& writer) {
  const auto key = [&](std::string_view suffix) {
    return fmt::format("clip.{}.{}", keys.kind, suffix);
  };
  RL_RETURN_IF_ERROR(writer.Set(fmt::format("clip.has_{}_encoder", keys.kind), true));
  RL_RETURN_IF_ERROR(writer.Set(key("projector_type"), keys.projector));
  RL_RETURN_IF_ERROR(writer.Set(key("attention.layer_norm_epsilon"), keys.eps));
  for (const auto& [suffix, value] : keys.integers) {
    RL_RETURN_IF_ERROR(writer.Set(key(suffix), static_cast<uint32_t>(value)));
  }
  return OkStatus();
}

Status WriteColours(float mean, float deviation, GgufWriter& writer) {
  const std::array<float, 3> means = {mean, mean, mean};
  const std::array<float, 3> deviations = {deviation, deviation, deviation};
  RL_RETURN_IF_ERROR(writer.SetArray("clip.vision.image_mean", std::span<const float>(means)));
  return writer.SetArray("clip.vision.image_std", std::span<const float>(deviations));
}

std::vector<float> TowerVector(const TensorSpec& spec) {
  const bool is_bias = spec.name.ends_with("bias");
  return std::vector<float>(is_bias ? static_cast<size_t>(spec.dims[0]) : 0, 0.0F);
}

}  // namespace rullama
