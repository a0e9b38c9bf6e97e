#include "models/gemma4/files/random_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "models/gemma4/files/synth_blocks.h"

namespace rullama {
namespace {

// Numbers from a seed, one after another.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t Int(int64_t low, int64_t high) {
    const uint64_t word = TensorSeed(seed_ + count_++, "draw");
    return low + static_cast<int64_t>(word % static_cast<uint64_t>(high - low + 1));
  }
  template <size_t n>
  int64_t Of(const std::array<int64_t, n>& choices) {
    return choices[static_cast<size_t>(Int(0, static_cast<int64_t>(n) - 1))];
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

constexpr std::array<DType, 9> kBlockTypes = {DType::kQ4_K, DType::kQ6_K, DType::kQ5_K,
                                              DType::kQ8_0, DType::kQ5_0, DType::kQ4_0,
                                              DType::kQ5_1, DType::kF16,  DType::kBF16};
constexpr std::array<DType, 2> kFloatTypes = {DType::kF16, DType::kBF16};

bool Fits(DType dtype, int64_t row) {
  return row % static_cast<int64_t>(InfoOf(dtype).block_elements) == 0;
}

// A type for a matrix, from its name: of the allowed ones the first, from a drawn place on, whose
// blocks divide a row.
DType TypeFor(uint64_t seed, const RandomModelTraits& traits, int64_t ple_dim,
              const TensorSpec& spec) {
  // A layer's part of a row of the per-layer table has to be whole blocks, too.
  const bool per_layer = spec.name == "per_layer_token_embd.weight";
  const int64_t row = per_layer ? ple_dim : spec.dims.back();
  if (spec.name.ends_with("ffn_gate_inp.weight")) return DType::kF32;  // routers stay exact
  const auto pick = [&](const auto& types) {
    const size_t first = TensorSeed(seed, spec.name + ".type") % types.size();
    for (size_t i = 0; i < types.size(); ++i) {
      const DType dtype = types[(first + i) % types.size()];
      if (Fits(dtype, row)) return dtype;
    }
    return DType::kF16;
  };
  return traits.quantised ? pick(kBlockTypes) : pick(kFloatTypes);
}

void DrawShapes(Draw& draw, const RandomModelTraits& traits, Gemma4Config& c) {
  constexpr int64_t kContext = 512;
  c.width = draw.Of<5>({32, 64, 96, 256, 200});
  c.vocabulary = draw.Int(64, 300);
  c.context_length = kContext;
  c.heads = draw.Of<3>({1, 2, 4});
  c.sliding_window = draw.Int(3, 20);
  c.ple_dim = traits.per_layer_embeddings ? draw.Of<4>({8, 32, 64, 256}) : 0;
  if (traits.experts) {
    c.experts.count = draw.Int(2, 9);
    c.experts.used = draw.Int(1, std::min<int64_t>(c.experts.count, 4));
    c.experts.ffn_width = draw.Of<4>({32, 64, 160, 256});
    c.experts.fused_gate_up = draw.Int(0, 1) == 0;
  }
  if (traits.canvas) c.canvas.length = draw.Int(1, 24);
  c.final_softcap = draw.Int(0, 2) == 0 ? 0.0F : 30.0F;
  c.n_rot_sliding = draw.Of<3>({16, 32, 64});
  c.n_rot_global = draw.Of<3>({16, 32, 64});
  c.rope_factors = MakeRopeFactors(c.n_rot_global / 2, kGemma4RotaryFraction);
}

// The last `shared` layers read a cache; each kind among them has a donor among the first ones.
void DrawLayers(Draw& draw, const RandomModelTraits& traits, Gemma4Config& c) {
  const int64_t owned = draw.Int(2, 5);
  const int64_t shared = traits.shared_kv ? draw.Int(1, 4) : 0;
  const int64_t sliding_kv = draw.Int(0, 1) == 0 ? 1 : c.heads;
  const int64_t global_kv = draw.Int(0, 1) == 0 ? 1 : c.heads;
  const int64_t ffn = draw.Of<5>({32, 64, 96, 256, 72});
  for (int64_t i = 0; i < owned + shared; ++i) {
    // The first two layers are one of each kind, so that every sharer finds a donor.
    const bool global = i == 1 || (i > 1 && draw.Int(0, 2) == 0);
    Gemma4Layer layer;
    layer.kind = global ? LayerKind::kGlobal : LayerKind::kSliding;
    layer.kv_heads = global ? global_kv : sliding_kv;
    layer.head_dim = global ? c.n_rot_global : c.n_rot_sliding;
    layer.ffn_width = traits.double_wide && i >= owned ? 2 * ffn : ffn;
    layer.cache_layer = i;
    layer.k_eq_v = traits.k_eq_v && global;
    c.layers.push_back(layer);
  }
  const Status assigned = AssignDonors(c.layers, shared);
  RL_CHECK(assigned.has_value());
}

std::vector<std::byte> BytesOf(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The middle of what a vector's values are drawn from. Weights of norms are near 1, but those of
// queries: random keys give far higher scores than trained ones, and a softmax that is all but an
// arg-max turns a rounding into another text. The scale of a layer is below 1.
float MiddleOf(std::string_view tensor) {
  if (tensor.ends_with("attn_q_norm.weight")) return 0.3F;
  if (tensor.ends_with("layer_output_scale.weight")) return 0.75F;
  return 1.0F;
}

std::vector<std::byte> VectorBytes(uint64_t seed, const WeightBinding& tensor) {
  constexpr float kSpread = 0.5F;
  const float middle = MiddleOf(tensor.tensor);
  std::vector<float> values(static_cast<size_t>(tensor.dims[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto word = static_cast<float>(TensorSeed(seed + i, tensor.tensor) >> 40) * 0x1p-24F;
    values[i] = middle * (1 + kSpread * (word - 0.5F));
  }
  return BytesOf(values);
}

std::vector<std::byte> MatrixBytes(uint64_t seed, const WeightBinding& tensor) {
  const auto row = static_cast<uint64_t>(tensor.dims.back());
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.dims.size(); ++i) rows *= static_cast<uint64_t>(tensor.dims[i]);
  std::vector<std::byte> bytes(rows * RowBytes(tensor.dtype, row));
  const float deviation = 1.0F / std::sqrt(static_cast<float>(row));
  FillRandomBlocks(tensor.dtype, TensorSeed(seed, tensor.tensor), 0, deviation, bytes);
  return bytes;
}

}  // namespace

RandomModelTraits DrawTraits(uint64_t seed) {
  const auto bit = [seed](int index) { return (seed >> index & 1) != 0; };
  const bool canvas = bit(7);
  return {.per_layer_embeddings = bit(0) && !canvas,
          .shared_kv = bit(1),
          .k_eq_v = bit(2),
          .double_wide = bit(3),
          .experts = bit(6),
          .canvas = canvas,
          .quantised = bit(4)};
}

std::string RandomModel::Describe() const {
  std::string layers;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    const char kind = config.layer(i).kind == LayerKind::kGlobal ? 'g' : 's';
    layers += config.OwnsCache(i) ? kind : static_cast<char>(kind - 'a' + 'A');
  }
  return fmt::format(
      "seed {}: layers {}, width {}, heads {}, ple {}, window {}, canvas {}, embedding {}", seed,
      layers, config.width, config.heads, config.ple_dim, config.sliding_window,
      config.canvas.length, NameOf(weights.Find("token_embd.weight")->dtype));
}

RandomModel MakeRandomModel(uint64_t seed, const RandomModelTraits& traits) {
  Draw draw(seed);
  Gemma4Config config;
  DrawShapes(draw, traits, config);
  DrawLayers(draw, traits, config);
  return MakeRandomModel(seed, traits, std::move(config));
}

RandomModel MakeRandomModel(uint64_t seed, const RandomModelTraits& traits, Gemma4Config config) {
  const Status valid = ValidateConfig(config);
  RL_CHECK(valid.has_value());
  RandomModel model;
  model.seed = seed;
  model.weights = Gemma4Weights::Synthetic(
      config, [&](const TensorSpec& spec) { return TypeFor(seed, traits, config.ple_dim, spec); });
  model.config = std::move(config);
  return model;
}

// ---- weights ------------------------------------------------------------------------------------

RandomWeights::RandomWeights(const RandomModel& model, std::vector<SyntheticConstant> constants)
    : rope_factors_(model.config.rope_factors), seed_(model.seed) {
  for (const TensorSpec& spec : ExpectedTensors(model.config)) {
    if (const WeightBinding* binding = model.weights.Find(spec.name)) {
      tensors_[binding->tensor] = *binding;
    }
  }
  for (SyntheticConstant& constant : constants) {
    made_[std::move(constant.name)] = std::move(constant.bytes);
  }
}

Result<std::span<const std::byte>> RandomWeights::Bytes(const Value& constant) const {
  auto made = made_.find(constant.source);
  if (made == made_.end()) {
    const auto tensor = tensors_.find(constant.source);
    if (tensor == tensors_.end()) {
      return MakeError(ErrorKind::kModelFile, "model.missing_tensor",
                       "the random model has no tensor '{}'", constant.source);
    }
    const WeightBinding& binding = tensor->second;
    std::vector<std::byte> bytes;
    if (binding.tensor == "rope_freqs.weight") {
      bytes = BytesOf(rope_factors_);
    } else if (binding.dims.size() == 1) {
      bytes = VectorBytes(seed_, binding);
    } else {
      bytes = MatrixBytes(seed_, binding);
    }
    made = made_.emplace(constant.source, std::move(bytes)).first;
  }
  const uint64_t wanted = constant.type.BytesAt({});
  const auto rows = static_cast<uint64_t>(constant.type.dim(0).constant);
  const uint64_t first = static_cast<uint64_t>(constant.first_row) * (wanted / rows);
  return std::span(made->second).subspan(first, wanted);
}

}  // namespace rullama
