// Gemma3Config and the `architecture` block of a configuration.
#include "models/common/graph/architecture.h"

#include <string>
#include <string_view>
#include <vector>

#include "models/gemma3/graph/config.h"

namespace rullama {
namespace {

// Between EmbeddingGemma's dense layers, in widths of the residual stream.
constexpr int64_t kPublishedDenseFactor = 4;

// Names parts that other families have and this one has not. A part that is given as absent (0,
// false) does not count.
Status CheckFamily(const ArchitectureConfig& a) {
  if (a.family && *a.family != kGemma3Architecture && *a.family != kEmbeddingGemmaArchitecture) {
    return MakeError(ErrorKind::kUsage, "model.architecture",
                     "architecture.family is '{}', expected '{}' or '{}'", *a.family,
                     kGemma3Architecture, kEmbeddingGemmaArchitecture);
  }
  std::vector<std::string_view> foreign;
  const auto refuse = [&foreign](bool given, std::string_view key) {
    if (given) foreign.push_back(key);
  };
  refuse(a.kv_heads->sliding != a.kv_heads->global, "kv_heads by kind of layer");
  refuse(a.head_dim->sliding != a.head_dim->global, "head_dim by kind of layer");
  refuse(a.ffn->owned != a.ffn->shared, "ffn by kind of layer");
  refuse(a.shared_kv_layers.value_or(0) != 0, "shared_kv_layers");
  refuse(a.ple_dim.value_or(0) != 0, "ple_dim");
  refuse(a.k_eq_v.value_or(false), "k_eq_v");
  refuse(a.canvas_length.value_or(0) != 0, "canvas_length");
  refuse(a.experts.count.value_or(0) != 0, "experts");
  refuse(a.rope.rotary_fraction_global.value_or(1) != 1, "rope.rotary_fraction_global");
  refuse(a.final_softcap.value_or(0) != 0, "final_softcap");
  if (foreign.empty()) return OkStatus();
  return MakeError(ErrorKind::kUsage, "model.architecture",
                   "a {} model has no {}; leave it out of `architecture`", kGemma3Architecture,
                   fmt::join(foreign, ", "));
}

Result<Gemma3Config> Build(const ArchitectureConfig& a) {
  Gemma3Config config;
  config.layers = *a.layers;
  config.width = *a.width;
  config.vocabulary = *a.vocabulary;
  config.context_length = *a.context_length;
  config.heads = *a.heads;
  config.kv_heads = a.kv_heads->global;
  config.head_dim = a.head_dim->global;
  config.ffn_width = a.ffn->owned;
  config.sliding_window = *a.sliding_window;
  config.pattern = *a.pattern;
  config.rms_eps = Narrow(a.rms_eps, config.rms_eps);
  config.rope_base_sliding = Narrow(a.rope.base_sliding, config.rope_base_sliding);
  config.rope_base_global = Narrow(a.rope.base_global, config.rope_base_global);
  config.rope_scaling_global = PublishedRopeScaling(config.context_length);
  config.encodes = a.family == kEmbeddingGemmaArchitecture;
  if (config.encodes) config.dense_width = kPublishedDenseFactor * config.width;
  RL_RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

}  // namespace

Result<Gemma3Config> Gemma3Config::FromArchitecture(const ArchitectureConfig& architecture) {
  return ConfigFromArchitecture(architecture, CheckFamily, Build);
}

Status Gemma3Config::CheckAgainst(const ArchitectureConfig& a) const {
  ArchitectureDifferences d;
  d.Compare("family", a.family, std::string(architecture()));
  d.Compare("canvas_length", a.canvas_length, int64_t{0});
  d.Compare("layers", a.layers, layers);
  d.Compare("width", a.width, width);
  d.Compare("heads", a.heads, heads);
  d.Compare("sliding_window", a.sliding_window, sliding_window);
  d.Compare("pattern", a.pattern, pattern);
  d.Compare("shared_kv_layers", a.shared_kv_layers, int64_t{0});
  d.Compare("ple_dim", a.ple_dim, int64_t{0});
  d.Compare("k_eq_v", a.k_eq_v, false);
  d.Compare("vocabulary", a.vocabulary, vocabulary);
  d.Compare("context_length", a.context_length, context_length);
  d.Compare("experts.count", a.experts.count, int64_t{0});
  if (a.kv_heads) {
    d.CompareEach("kv_heads", {a.kv_heads->sliding, a.kv_heads->global}, kv_heads);
  }
  if (a.head_dim) {
    d.CompareEach("head_dim", {a.head_dim->sliding, a.head_dim->global}, head_dim);
  }
  if (a.ffn) d.CompareEach("ffn", {a.ffn->owned, a.ffn->shared}, ffn_width);
  d.CompareReal("rope.base_global", a.rope.base_global, rope_base_global);
  d.CompareReal("rope.base_sliding", a.rope.base_sliding, rope_base_sliding);
  d.CompareReal("rope.rotary_fraction_global", a.rope.rotary_fraction_global, 1);
  d.CompareReal("rms_eps", a.rms_eps, rms_eps);
  d.CompareReal("final_softcap", a.final_softcap, 0);
  return d.Report();
}

}  // namespace rullama
