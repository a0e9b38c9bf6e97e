#include "models/quantize/quant_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

namespace rullama {
namespace {

// The numbers of general.file_type of mixes with rules of their own (OwnRule).
constexpr uint32_t kQ2K = 10, kQ3KM = 12, kQ4KS = 14, kIq4Nl = 25, kIq4Xs = 30, kMxfp4Moe = 38;

constexpr QuantMix kMixes[] = {
    {"Q4_K_M", 15, DType::kQ4_K, DType::kQ6_K, DType::kQ6_K},
    {"Q5_K_M", 17, DType::kQ5_K, DType::kQ6_K, DType::kQ6_K},
    {"Q6_K", 18, DType::kQ6_K, DType::kQ6_K, DType::kQ6_K},
    {"Q8_0", 7, DType::kQ8_0, DType::kQ8_0, DType::kQ8_0},
    {"Q4_K_S", kQ4KS, DType::kQ4_K, DType::kQ6_K, DType::kQ5_K},
    {"Q3_K_M", kQ3KM, DType::kQ3_K, DType::kQ6_K, DType::kQ4_K},
    {"Q2_K", kQ2K, DType::kQ2_K, DType::kQ6_K, DType::kQ3_K},
    {"IQ4_NL", kIq4Nl, DType::kIQ4_NL, DType::kQ6_K, DType::kQ5_K},
    {"IQ4_XS", kIq4Xs, DType::kIQ4_XS, DType::kQ6_K, DType::kQ5_K},
    {"MXFP4_MOE", kMxfp4Moe, DType::kMXFP4, DType::kQ8_0, DType::kQ8_0},
    {"Q4_0", 2, DType::kQ4_0, DType::kQ6_K, DType::kQ4_0},
    {"Q5_0", 8, DType::kQ5_0, DType::kQ6_K, DType::kQ5_0},
    {"F16", 1, DType::kF16, DType::kF16, DType::kF16},
    {"BF16", 32, DType::kBF16, DType::kBF16, DType::kBF16},
};

// llama-quantize gives the attention of models with exactly this many experts more bits, because it
// is small compared with them.
constexpr int64_t kExpertsWithBetterAttention = 8;

bool FitsRow(DType dtype, uint64_t row) { return row % InfoOf(dtype).block_elements == 0; }

// K-quants come in blocks of 256; rows of another length take the 32-element type next in size.
DType FitRow(DType dtype, uint64_t row) {
  if (FitsRow(dtype, row)) return dtype;
  DType smaller_blocks = DType::kF16;
  if (dtype == DType::kQ4_K) smaller_blocks = DType::kQ5_0;
  if (dtype == DType::kQ5_K) smaller_blocks = DType::kQ5_1;
  if (dtype == DType::kQ6_K) smaller_blocks = DType::kQ8_0;
  if (dtype == DType::kQ2_K || dtype == DType::kQ3_K || dtype == DType::kIQ4_XS) {
    smaller_blocks = DType::kIQ4_NL;
  }
  return FitsRow(smaller_blocks, row) ? smaller_blocks : DType::kF16;
}

char ToUpper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// The layer that a name belongs to ("blk.3.", in a tower "v.blk.3."); 0 for names outside of
// layers.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  int64_t layer = 0;
  if (const size_t at = name.find(kBlock); at != std::string_view::npos) {
    std::from_chars(name.data() + at + kBlock.size(), name.data() + name.size(), layer);
  }
  return layer;
}

bool IsOfTower(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("a.") || name.starts_with("mm.");
}

bool StaysAsItIs(const QuantTensor& tensor) {
  const std::string_view name = tensor.name;
  return tensor.rank < 2 || !name.ends_with("weight") || name.ends_with("_norm.weight") ||
         name.ends_with("ffn_gate_inp.weight") || name == "per_layer_model_proj.weight" ||
         IsOfTower(name);
}

bool StaysAsItIsInTower(const QuantTensor& tensor) {
  const std::string_view name = tensor.name;
  const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
  return tensor.rank < 2 || !name.ends_with(".weight") || has("patch_embd") ||
         has("position_embd") || has("conv1d") || has("conv_dw") ||
         name == "a.input_projection.weight";
}

bool IsEmbedding(std::string_view name) {
  return name == "token_embd.weight" || name == "per_layer_token_embd.weight" ||
         name == "output.weight";
}

bool IsValueProjection(std::string_view name) { return name.ends_with(".attn_v.weight"); }

bool IsDownProjection(std::string_view name) {
  return name.ends_with(".ffn_down.weight") || name.ends_with(".ffn_down_exps.weight");
}

bool IsFloat(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// The layers with a value projection, ascending whatever the order of the file.
std::vector<int64_t> LayersOfValueProjections(std::span<const QuantTensor> tensors) {
  std::vector<int64_t> layers;
  for (const QuantTensor& tensor : tensors) {
    if (IsValueProjection(tensor.name)) layers.push_back(LayerOf(tensor.name));
  }
  std::ranges::sort(layers);
  return layers;
}

// Where a matrix lies in the network.
struct Place {
  std::string_view name;
  uint32_t rank;
  // Of a value projection its number among those that exist, and their count; else of the layer.
  int64_t index, count;
  const NetworkFacts& network;

  [[nodiscard]] bool IsOutput() const { return name.ends_with(".attn_output.weight"); }
  [[nodiscard]] bool IsImportant() const {
    return IsValueProjection(name) || IsDownProjection(name);
  }
};

// The value projection of Q2_K and IQ4 gets more bits where four heads or more share it.
constexpr int64_t kHeadsThatShareMuch = 4;

// What llama-quantize does in mixes that do not follow MoreBits. Nothing for matrices without a
// rule and for other mixes.
std::optional<DType> OwnRule(const QuantMix& mix, const Place& place) {
  const bool value = IsValueProjection(place.name), down = IsDownProjection(place.name);
  const bool shared = place.network.heads_per_kv >= kHeadsThatShareMuch;
  const int64_t layers = place.count;
  switch (mix.file_type) {
    case kQ2K:
      if (value) return shared ? DType::kQ4_K : DType::kQ3_K;
      return down || place.IsOutput() ? DType::kQ3_K : DType::kQ2_K;
    case kQ3KM:
      if (value) return place.index < 2 ? DType::kQ5_K : DType::kQ4_K;
      if (down) return place.index < layers / 16 ? DType::kQ5_K : DType::kQ4_K;
      return place.IsOutput() ? DType::kQ4_K : DType::kQ3_K;
    case kQ4KS:
      if (value) return place.index < 4 ? DType::kQ5_K : DType::kQ4_K;
      return down && place.index < layers / 8 ? DType::kQ5_K : DType::kQ4_K;
    case kIq4Nl:
    case kIq4Xs:
      if (value) return shared ? DType::kQ5_K : mix.base;
      return down && place.index < layers / 8 ? DType::kQ5_K : mix.base;
    default:
      return std::nullopt;
  }
}

// The type of a matrix by its place in the network, before its row length is looked at.
DType TypeByPlace(const QuantMix& mix, const Place& place) {
  // Matrices of experts have a dimension for the expert.
  if (mix.file_type == kMxfp4Moe) return place.rank > 2 ? DType::kMXFP4 : DType::kQ8_0;
  if (IsEmbedding(place.name)) return mix.embedding;
  if (place.network.experts == kExpertsWithBetterAttention && !IsFloat(mix.base)) {
    if (IsValueProjection(place.name) || place.name.ends_with(".attn_k.weight")) {
      return DType::kQ8_0;
    }
    const bool is_small = mix.base == DType::kQ4_K || OwnRule(mix, place).has_value();
    if (place.IsOutput() && is_small) return DType::kQ5_K;
  }
  if (const auto own = OwnRule(mix, place)) return *own;
  return place.IsImportant() && MoreBits(place.index, place.count) ? mix.important : mix.base;
}

}  // namespace

std::string QuantMixNames() {
  std::string names;
  for (const QuantMix& mix : kMixes) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", mix.name);
  }
  return names;
}

Result<QuantMix> FindQuantMix(std::string_view name) {
  // llama-quantize takes any case as well.
  const auto same = [name](const QuantMix& mix) {
    return std::ranges::equal(mix.name, name,
                              [](char a, char b) { return ToUpper(a) == ToUpper(b); });
  };
  const auto* const found = std::ranges::find_if(kMixes, same);
  if (found != std::end(kMixes)) return *found;
  return MakeError(ErrorKind::kUsage, "quantize.type", "type '{}' is not one of {}", name,
                   QuantMixNames());
}

bool MoreBits(int64_t index, int64_t count) {
  return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
}

std::vector<std::optional<DType>> ChooseTypes(const QuantMix& mix,
                                              std::span<const QuantTensor> tensors,
                                              const NetworkFacts& network) {
  const std::vector<int64_t> values = LayersOfValueProjections(tensors);
  std::vector<std::optional<DType>> types;
  for (const QuantTensor& tensor : tensors) {
    if (StaysAsItIs(tensor)) {
      types.push_back(std::nullopt);
      continue;
    }
    Place place{tensor.name, tensor.rank, LayerOf(tensor.name), network.layers, network};
    if (IsValueProjection(tensor.name)) {
      place.index = std::ranges::lower_bound(values, place.index) - values.begin();
      place.count = std::ssize(values);
    }
    types.push_back(FitRow(TypeByPlace(mix, place), tensor.row));
  }
  return types;
}

std::vector<std::optional<DType>> ChooseTowerTypes(const QuantMix& mix,
                                                   std::span<const QuantTensor> tensors) {
  const auto layers = [&tensors](char tower) {
    return std::ranges::count_if(tensors, [tower](const QuantTensor& tensor) {
      return tensor.name.front() == tower && IsValueProjection(tensor.name);
    });
  };
  std::vector<std::optional<DType>> types;
  for (const QuantTensor& tensor : tensors) {
    if (StaysAsItIsInTower(tensor)) {
      types.push_back(std::nullopt);
      continue;
    }
    // llama-quantize knows no number of layers in such a file and gives every ffn_down more bits.
    bool more_bits = tensor.name.find(".ffn_down") != std::string_view::npos;
    if (IsValueProjection(tensor.name)) {
      more_bits = MoreBits(LayerOf(tensor.name), layers(tensor.name.front()));
    }
    types.push_back(FitRow(more_bits ? mix.important : mix.base, tensor.row));
  }
  return types;
}

}  // namespace rullama
