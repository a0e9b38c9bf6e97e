#include "engine/training/new_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rullama/sdk/philox.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace rullama {
namespace {

// Keeps the numbers of adapters apart from those that samplers draw with the same seed.
constexpr uint32_t kAStream = 0x4C6F5241;
constexpr uint32_t kBStream = 0x4C6F5242;

constexpr std::string_view kAttentionNames[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
constexpr std::string_view kMlpNames[] = {"ffn_gate", "ffn_up", "ffn_down"};

bool IsOneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a word of training.targets means this weight.
bool Means(std::string_view word, const AdaptableWeight& weight) {
  const bool attention = IsOneOf(kAttentionNames, weight.name);
  const bool mlp = IsOneOf(kMlpNames, weight.name);
  if (word == "all") return attention || mlp;
  if (word == "attn") return attention;
  if (word == "mlp") return mlp;
  return word == weight.name || word == weight.module;
}

// Numbers in +-bound that depend on seed, weight and stream alone.
std::vector<float> Draw(const AdaptableWeight& weight, uint32_t stream, int64_t count, double bound,
                        uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (const char c : weight.name) stream = stream * 31 + static_cast<unsigned char>(c);
  const auto layer = static_cast<uint32_t>(weight.layer + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = PhiloxUniform(seed, static_cast<uint32_t>(i), stream, layer);
    values[i] = static_cast<float>((2 * u - 1) * bound);
  }
  return values;
}

}  // namespace

Result<std::vector<AdaptableWeight>> ChooseWeights(const Model& model,
                                                   const TrainingConfig& config) {
  const std::vector<AdaptableWeight> all = model.AdaptableWeights();
  const int64_t layers = model.facts().layers;
  if (config.num_layers == 0 || config.num_layers > layers) {
    return MakeError(ErrorKind::kUsage, "train.option",
                     "training.num_layers is {}, expected -1 or 1 to the {} layers of this model",
                     config.num_layers, layers);
  }
  const int64_t first = config.num_layers < 0 ? 0 : layers - config.num_layers;
  std::vector<AdaptableWeight> chosen;
  for (const std::string& word : config.targets) {
    const bool known = std::ranges::any_of(
        all, [&](const AdaptableWeight& weight) { return Means(word, weight); });
    if (known) continue;
    std::set<std::string> names;
    for (const AdaptableWeight& weight : all) names.insert(weight.name);
    return MakeError(ErrorKind::kUsage, "train.option",
                     "training.targets has '{}', expected attn, mlp, all, or names of {}", word,
                     fmt::join(names, ", "));
  }
  for (const AdaptableWeight& weight : all) {
    const bool wanted = std::ranges::any_of(
        config.targets, [&](const std::string& word) { return Means(word, weight); });
    if (wanted && weight.layer >= first) chosen.push_back(weight);
  }
  if (!chosen.empty()) return chosen;
  return MakeError(ErrorKind::kUsage, "train.option",
                   "training.targets names no weight of the last {} layers, expected at least one",
                   layers - first);
}

double AdapterFactor(const TrainingConfig& config) {
  const auto rank = static_cast<double>(config.rank);
  return config.alpha / (config.rslora ? std::sqrt(rank) : rank);
}

Result<LowRankPair> PairOf(const AdaptableWeight& weight, const TrainingConfig& config) {
  const int64_t most = std::min(weight.inputs, weight.outputs);
  if (config.rank > most) {
    return MakeError(ErrorKind::kUsage, "train.option",
                     "training.rank is {}, expected at most {}, as '{}' is {} x {}", config.rank,
                     most, weight.tensor, weight.outputs, weight.inputs);
  }
  return LowRankPair{.weight = weight.tensor,
                     .rank = config.rank,
                     .inputs = weight.inputs,
                     .outputs = weight.outputs,
                     .lifetime = Lifetime::kState,
                     .a = weight.tensor + ".lora_a",
                     .b = weight.tensor + ".lora_b",
                     .scale = static_cast<float>(AdapterFactor(config))};
}

std::vector<float> DrawA(const AdaptableWeight& weight, int64_t rank, uint64_t seed) {
  return Draw(weight, kAStream, rank * weight.inputs,
              1 / std::sqrt(static_cast<double>(weight.inputs)), seed);
}

std::vector<float> DrawB(const AdaptableWeight& weight, int64_t rank, uint64_t seed) {
  constexpr double kBound = 0.03;
  return Draw(weight, kBStream, rank * weight.outputs, kBound, seed);
}

}  // namespace rullama
