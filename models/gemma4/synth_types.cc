#include "models/gemma4/synth_types.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

namespace rullama {
namespace {

constexpr QuantMix kMixes[] = {
    {"Q4_K_M", 15, DType::kQ4_K, DType::kQ6_K, DType::kQ6_K},
    {"Q5_K_M", 17, DType::kQ5_K, DType::kQ6_K, DType::kQ6_K},
    {"Q6_K", 18, DType::kQ6_K, DType::kQ6_K, DType::kQ6_K},
    {"Q8_0", 7, DType::kQ8_0, DType::kQ8_0, DType::kQ8_0},
    {"Q4_0", 2, DType::kQ4_0, DType::kQ6_K, DType::kQ4_0},
    {"F16", 1, DType::kF16, DType::kF16, DType::kF16},
    {"BF16", 32, DType::kBF16, DType::kBF16, DType::kBF16},
};

// K-quants come in blocks of 256; rows of another length take the 32-element type next in size.
DType FitRow(DType dtype, int64_t row) {
  if (row % InfoOf(dtype).block_elements == 0) return dtype;
  switch (dtype) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return DType::kF16;
  }
}

int64_t LayerOf(std::string_view name) {
  int64_t layer = 0;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

}  // namespace

Result<QuantMix> FindQuantMix(std::string_view name) {
  std::string known;
  for (const QuantMix& mix : kMixes) {
    if (mix.name == name) return mix;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", mix.name);
  }
  return MakeError(ErrorKind::kUsage, "synth.type", "type '{}' is not one of {}", name, known);
}

bool MoreBits(int64_t index, int64_t count) {
  return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
}

std::vector<DType> ChooseTypes(const QuantMix& mix, const std::vector<TensorSpec>& specs,
                               int64_t layer_count) {
  int64_t values_in_all = 0;  // attn_v tensors are counted in file order, ffn_down by layer
  for (const TensorSpec& spec : specs)
    values_in_all += spec.name.ends_with("attn_v.weight") ? 1 : 0;
  std::vector<DType> types;
  int64_t values = 0;
  for (const TensorSpec& spec : specs) {
    DType dtype = mix.base;
    if (spec.is_vector()) {
      types.push_back(DType::kF32);
      continue;
    }
    if (spec.name.ends_with("ffn_gate_inp.weight")) {
      types.push_back(DType::kF32);  // routers are never quantised
      continue;
    }
    if (spec.name == "per_layer_model_proj.weight") {
      dtype = mix.base == DType::kBF16 ? DType::kBF16 : DType::kF16;  // never quantised
    } else if (spec.name == "token_embd.weight" || spec.name == "per_layer_token_embd.weight" ||
               spec.name == "output.weight") {
      dtype = mix.embedding;
    } else if (spec.name.ends_with("attn_v.weight")) {
      if (MoreBits(values++, values_in_all)) dtype = mix.important;
    } else if (spec.name.ends_with("ffn_down.weight") ||
               spec.name.ends_with("ffn_down_exps.weight")) {
      if (MoreBits(LayerOf(spec.name), layer_count)) dtype = mix.important;
    }
    types.push_back(FitRow(dtype, spec.dims.back()));
  }
  return types;
}

}  // namespace rullama
