#include "models/gemma4/files/random_model.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace rullama {
namespace {

DType TypeFor(uint64_t seed, const RandomModelTraits& traits, int64_t ple_dim,
              const TensorSpec& spec) {
  // A layer's part of a row of the per-layer table has to be whole blocks, too.
  const bool per_layer = spec.name == "per_layer_token_embd.weight";
  const int64_t row = per_layer ? ple_dim : spec.dims.back();
  if (spec.name.ends_with("ffn_gate_inp.weight")) return DType::kF32;  // routers stay exact
  return DrawType(seed, spec.name, row, traits.quantised);
}

void DrawShapes(SeededDraw& draw, const RandomModelTraits& traits, Gemma4Config& c) {
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
void DrawLayers(SeededDraw& draw, const RandomModelTraits& traits, Gemma4Config& c) {
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
  SeededDraw draw(seed);
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

RandomWeights::RandomWeights(const RandomModel& model, std::vector<SyntheticConstant> constants)
    : RandomTensors(model.weights, model.seed, {{"rope_freqs.weight", model.config.rope_factors}},
                    std::move(constants)) {}

}  // namespace rullama
