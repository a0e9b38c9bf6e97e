// Gemma4Config and the `architecture` block of a configuration.
#include "models/common/graph/architecture.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "models/common/graph/hparams.h"
#include "models/gemma4/graph/config.h"

namespace rullama {
namespace {

constexpr float kDefaultSoftcap = 30.0F;
// Numbers of a vector of EmbeddingGemma 2.
constexpr int64_t kPublishedEmbedding = 768;

LayerKind KindInPattern(int64_t index, int64_t layers, int64_t pattern) {
  const bool global = (index + 1) % pattern == 0 || index + 1 == layers;
  return global ? LayerKind::kGlobal : LayerKind::kSliding;
}

int64_t ByKind(const SlidingGlobal& pair, LayerKind kind) {
  return kind == LayerKind::kSliding ? pair.sliding : pair.global;
}

// Whether the block names a member of this family and has a canvas if that member denoises one.
Status CheckFamily(const ArchitectureConfig& a) {
  if (!a.family) return OkStatus();
  const bool encodes = *a.family == kEmbeddingGemma2Architecture;
  if (*a.family != kGemma4Architecture && *a.family != kDiffusionGemmaArchitecture && !encodes) {
    return MakeError(ErrorKind::kUsage, "model.architecture",
                     "architecture.family is '{}', expected '{}', '{}' or '{}'", *a.family,
                     kGemma4Architecture, kDiffusionGemmaArchitecture,
                     kEmbeddingGemma2Architecture);
  }
  const bool denoises = *a.family == kDiffusionGemmaArchitecture;
  if (denoises && !a.canvas_length) {
    return MakeError(ErrorKind::kUsage, "config.missing_key",
                     "missing: architecture.canvas_length; see configs/ for examples");
  }
  if (denoises == (a.canvas_length.value_or(0) > 0)) return OkStatus();
  return MakeError(ErrorKind::kUsage, "config.conflict",
                   "architecture.canvas_length is {}, but architecture.family is '{}': {}",
                   a.canvas_length.value_or(0), *a.family,
                   denoises  ? "it denoises a canvas"
                   : encodes ? "it makes embeddings"
                             : "it predicts the next token");
}

Result<Gemma4Config> Build(const ArchitectureConfig& a) {
  if (*a.layers < 1 || *a.layers > kMaxLayers || *a.pattern < 1) {
    return MakeError(ErrorKind::kUsage, "model.architecture",
                     "layers is {} and pattern {}, expected 1 to {} and 1 or more", *a.layers,
                     *a.pattern, kMaxLayers);
  }
  Gemma4Config config;
  config.width = *a.width;
  config.vocabulary = *a.vocabulary;
  config.context_length = *a.context_length;
  config.heads = *a.heads;
  config.sliding_window = *a.sliding_window;
  config.ple_dim = a.ple_dim.value_or(0);
  config.rms_eps = Narrow(a.rms_eps, config.rms_eps);
  const bool encodes = a.family == kEmbeddingGemma2Architecture;
  if (encodes) config.embedding_width = kPublishedEmbedding;
  config.final_softcap = Narrow(a.final_softcap, encodes ? 0 : kDefaultSoftcap);
  config.rope_base_sliding = Narrow(a.rope.base_sliding, config.rope_base_sliding);
  config.rope_base_global = Narrow(a.rope.base_global, config.rope_base_global);
  config.n_rot_sliding = a.head_dim->sliding;
  config.n_rot_global = a.head_dim->global;
  const double rotates = encodes ? 1 : kGemma4RotaryFraction;
  config.rope_factors =
      MakeRopeFactors(config.n_rot_global / 2, a.rope.rotary_fraction_global.value_or(rotates));
  config.experts.count = a.experts.count.value_or(0);
  config.experts.used = a.experts.used.value_or(0);
  config.experts.ffn_width = a.experts.ffn.value_or(0);
  config.canvas.length = a.canvas_length.value_or(0);
  const int64_t shared = a.shared_kv_layers.value_or(0);
  for (int64_t i = 0; i < *a.layers; ++i) {
    const LayerKind kind = KindInPattern(i, *a.layers, *a.pattern);
    const bool owns = i < *a.layers - shared;
    config.layers.push_back({
        .kind = kind,
        .kv_heads = ByKind(*a.kv_heads, kind),
        .head_dim = ByKind(*a.head_dim, kind),
        .ffn_width = owns ? a.ffn->owned : a.ffn->shared,
        .k_eq_v = a.k_eq_v.value_or(false) && owns && kind == LayerKind::kGlobal,
    });
  }
  RL_RETURN_IF_ERROR(AssignDonors(config.layers, shared));
  RL_RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

// One line per key and layer kind, not per layer: the first layer that differs stands for all.
void CompareLayers(const Gemma4Config& c, const ArchitectureConfig& a,
                   ArchitectureDifferences& differences) {
  bool told_heads = false;
  bool told_dims = false;
  bool told_ffn = false;
  bool told_pattern = false;
  const auto once = [&](bool& told, std::string_view key, int64_t index, int64_t expected,
                        int64_t found) {
    if (told || expected == found) return;
    differences.Add(fmt::format("{} (layer {})", key, index), expected, found);
    told = true;
  };
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    const Gemma4Layer& layer = c.layer(i);
    if (a.kv_heads) {
      once(told_heads, "kv_heads", i, ByKind(*a.kv_heads, layer.kind), layer.kv_heads);
    }
    if (a.head_dim) {
      once(told_dims, "head_dim", i, ByKind(*a.head_dim, layer.kind), layer.head_dim);
    }
    if (a.ffn) {
      once(told_ffn, "ffn", i, c.OwnsCache(i) ? a.ffn->owned : a.ffn->shared, layer.ffn_width);
    }
    if (a.pattern && !told_pattern && KindInPattern(i, c.layer_count(), *a.pattern) != layer.kind) {
      const bool global = layer.kind == LayerKind::kGlobal;
      differences.Add<std::string_view>(fmt::format("pattern {} (layer {})", *a.pattern, i),
                                        global ? "sliding" : "global",
                                        global ? "global" : "sliding");
      told_pattern = true;
    }
  }
}

bool AnyKEqV(const Gemma4Config& c) {
  for (const Gemma4Layer& layer : c.layers) {
    if (layer.k_eq_v) return true;
  }
  return false;
}

}  // namespace

Result<Gemma4Config> Gemma4Config::FromArchitecture(const ArchitectureConfig& architecture) {
  return ConfigFromArchitecture(architecture, CheckFamily, Build);
}

Status Gemma4Config::CheckAgainst(const ArchitectureConfig& a) const {
  ArchitectureDifferences d;
  d.Compare("family", a.family, std::string(architecture()));
  d.Compare("canvas_length", a.canvas_length, canvas.length);
  d.Compare("layers", a.layers, layer_count());
  d.Compare("width", a.width, width);
  d.Compare("heads", a.heads, heads);
  d.Compare("sliding_window", a.sliding_window, sliding_window);
  d.Compare("shared_kv_layers", a.shared_kv_layers, layer_count() - first_shared_layer());
  d.Compare("ple_dim", a.ple_dim, ple_dim);
  d.Compare("k_eq_v", a.k_eq_v, AnyKEqV(*this));
  d.Compare("vocabulary", a.vocabulary, vocabulary);
  d.Compare("context_length", a.context_length, context_length);
  d.Compare("experts.count", a.experts.count, experts.count);
  d.Compare("experts.used", a.experts.used, experts.used);
  d.Compare("experts.ffn", a.experts.ffn, experts.ffn_width);
  d.CompareReal("rope.base_global", a.rope.base_global, rope_base_global);
  d.CompareReal("rope.base_sliding", a.rope.base_sliding, rope_base_sliding);
  d.CompareReal("rms_eps", a.rms_eps, rms_eps);
  d.CompareReal("final_softcap", a.final_softcap, final_softcap);
  if (a.rope.rotary_fraction_global) {
    const double pairs = static_cast<double>(rope_factors.size());
    d.Compare<int64_t>("rope.rotary_fraction_global (as pairs that rotate)",
                       std::llround(pairs * *a.rope.rotary_fraction_global),
                       CountRotatingPairs(rope_factors));
  }
  CompareLayers(*this, a, d);
  return d.Report();
}

}  // namespace rullama
