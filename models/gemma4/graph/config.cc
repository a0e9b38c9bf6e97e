#include "models/gemma4/graph/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/config/range.h"
#include "models/common/graph/hparams.h"

namespace rullama {
namespace {

constexpr int64_t kMaxPleDim = 4096;
constexpr float kMaxSoftcap = 1e6F;

// A pair whose frequency is divided by more than this turns by less than 1e-8 rad per token: not
// at all in f32 within any context. Gemma's files use 1e30.
constexpr float kStillFactor = 1e8F;
constexpr float kStoredStillFactor = 1e30F;

Status CheckLayer(const Gemma4Config& c, int64_t index) {
  const Gemma4Layer& layer = c.layer(index);
  const auto name = [index](std::string_view what) {
    return fmt::format("{} of layer {}", what, index);
  };
  RL_RETURN_IF_ERROR(InRange<int64_t>(name("key/value head count"), layer.kv_heads, 1, kMaxHeads));
  RL_RETURN_IF_ERROR(InRange<int64_t>(name("head dim"), layer.head_dim, 2, kMaxHeadDim));
  RL_RETURN_IF_ERROR(InRange<int64_t>(name("FFN width"), layer.ffn_width, 1, kMaxFfnWidth));
  if (layer.head_dim % 2 != 0) {
    return MakeError(ErrorKind::kModelFile, "model.hparam",
                     "head dim of layer {} is {}, expected an even number (rotary embedding turns "
                     "pairs)",
                     index, layer.head_dim);
  }
  if (c.heads % layer.kv_heads != 0) {
    return MakeError(ErrorKind::kModelFile, "model.hparam",
                     "layer {} has {} query heads and {} key/value heads, expected a multiple",
                     index, c.heads, layer.kv_heads);
  }
  const int64_t n_rot = c.n_rot(layer.kind);
  if (n_rot < 2 || n_rot % 2 != 0 || n_rot > layer.head_dim) {
    return MakeError(ErrorKind::kModelFile, "model.hparam",
                     "rotary dimension count of layer {} is {}, expected an even number of 2 to "
                     "the head dim {}",
                     index, n_rot, layer.head_dim);
  }
  return OkStatus();
}

Status CheckDonor(const Gemma4Config& c, int64_t index) {
  const int64_t donor = c.layer(index).cache_layer;
  if (donor == index) return OkStatus();
  const bool earlier_owner = donor >= 0 && donor < index && c.OwnsCache(donor);
  if (!earlier_owner || c.layer(donor).kind != c.layer(index).kind) {
    return MakeError(ErrorKind::kModelFile, "model.kv_donor",
                     "layer {} reads the cache of layer {}, expected an earlier layer of the same "
                     "kind that owns one",
                     index, donor);
  }
  if (c.layer(donor).kv_heads != c.layer(index).kv_heads ||
      c.layer(donor).head_dim != c.layer(index).head_dim) {
    return MakeError(ErrorKind::kModelFile, "model.kv_donor",
                     "layer {} has {} key/value heads of {} dims but reads the cache of layer {}, "
                     "which has {} of {}",
                     index, c.layer(index).kv_heads, c.layer(index).head_dim, donor,
                     c.layer(donor).kv_heads, c.layer(donor).head_dim);
  }
  return OkStatus();
}

Status CheckExperts(const Gemma4Experts& experts) {
  constexpr int64_t kMaxExperts = 65536;
  if (experts.count == 0) return OkStatus();
  RL_RETURN_IF_ERROR(InRange<int64_t>("expert count", experts.count, 1, kMaxExperts));
  RL_RETURN_IF_ERROR(InRange<int64_t>("used expert count", experts.used, 1, experts.count));
  return InRange<int64_t>("expert FFN width", experts.ffn_width, 1, kMaxFfnWidth);
}

Status CheckCanvas(const Gemma4Config& c) {
  if (!c.denoises()) return OkStatus();
  RL_RETURN_IF_ERROR(InRange<int64_t>("canvas length", c.canvas.length, 1, c.context_length));
  if (c.ple_dim == 0) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "model.unsupported",
                   "a model that denoises has per-layer embeddings of {} dims, expected none",
                   c.ple_dim);
}

Status CheckRopeFactors(const Gemma4Config& c) {
  if (std::ssize(c.rope_factors) != c.n_rot_global / 2) {
    return MakeError(ErrorKind::kModelFile, "model.hparam",
                     "found {} rope frequency factors, expected {} (half the rotary dimension "
                     "count of global layers)",
                     c.rope_factors.size(), c.n_rot_global / 2);
  }
  for (size_t i = 0; i < c.rope_factors.size(); ++i) {
    const float factor = c.rope_factors[i];
    if (!(factor > 0) || !std::isfinite(factor)) {
      return MakeError(ErrorKind::kModelFile, "model.hparam",
                       "rope frequency factor {} is {}, expected a finite number above 0", i,
                       factor);
    }
  }
  return OkStatus();
}

}  // namespace

int64_t Gemma4Config::first_shared_layer() const {
  for (int64_t i = 0; i < layer_count(); ++i) {
    if (!OwnsCache(i)) return i;
  }
  return layer_count();
}

int64_t CountRotatingPairs(const std::vector<float>& rope_factors) {
  return std::count_if(rope_factors.begin(), rope_factors.end(),
                       [](float factor) { return factor < kStillFactor; });
}

std::vector<float> MakeRopeFactors(int64_t pairs, double fraction) {
  const int64_t rotating = std::llround(static_cast<double>(pairs) * fraction);
  std::vector<float> factors(static_cast<size_t>(pairs), kStoredStillFactor);
  std::fill_n(factors.begin(), std::clamp<int64_t>(rotating, 0, pairs), 1.0F);
  return factors;
}

Status AssignDonors(std::vector<Gemma4Layer>& layers, int64_t shared_kv_layers) {
  const int64_t count = std::ssize(layers);
  if (shared_kv_layers < 0 || (shared_kv_layers >= count && shared_kv_layers > 0)) {
    return MakeError(ErrorKind::kModelFile, "model.kv_donor",
                     "{} of {} layers share another layer's cache, expected fewer: the first "
                     "layers own the caches",
                     shared_kv_layers, count);
  }
  const int64_t first_shared = count - shared_kv_layers;
  int64_t donor_of[] = {-1, -1};  // by kind
  for (int64_t i = 0; i < count; ++i) {
    Gemma4Layer& layer = layers[static_cast<size_t>(i)];
    int64_t& donor = donor_of[static_cast<size_t>(layer.kind)];
    if (i < first_shared) donor = i;
    if (donor < 0) {
      return MakeError(ErrorKind::kModelFile, "model.kv_donor",
                       "layer {} shares the cache of an earlier {} layer, but none of the first {} "
                       "layers is one",
                       i, layer.kind == LayerKind::kSliding ? "sliding" : "global", first_shared);
    }
    layer.cache_layer = donor;
  }
  return OkStatus();
}

Status ValidateConfig(const Gemma4Config& c) {
  RL_RETURN_IF_ERROR(InRange<int64_t>("layer count", c.layer_count(), 1, kMaxLayers));
  RL_RETURN_IF_ERROR(InRange<int64_t>("model width", c.width, 1, kMaxWidth));
  RL_RETURN_IF_ERROR(InRange<int64_t>("vocabulary size", c.vocabulary, 1, kMaxVocabulary));
  RL_RETURN_IF_ERROR(InRange<int64_t>("context length", c.context_length, 1, kMaxContext));
  RL_RETURN_IF_ERROR(InRange<int64_t>("query head count", c.heads, 1, kMaxHeads));
  RL_RETURN_IF_ERROR(InRange<int64_t>("sliding window", c.sliding_window, 1, c.context_length));
  RL_RETURN_IF_ERROR(InRange<int64_t>("per-layer embedding width", c.ple_dim, 0, kMaxPleDim));
  RL_RETURN_IF_ERROR(InRange("RMS norm epsilon", c.rms_eps, kMinRmsEps, kMaxRmsEps));
  RL_RETURN_IF_ERROR(InRange("final logit softcap", c.final_softcap, 0.0F, kMaxSoftcap));
  RL_RETURN_IF_ERROR(
      InRange("rope base of sliding layers", c.rope_base_sliding, 1.0F, kMaxRopeBase));
  RL_RETURN_IF_ERROR(InRange("rope base of global layers", c.rope_base_global, 1.0F, kMaxRopeBase));
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    RL_RETURN_IF_ERROR(CheckLayer(c, i));
    RL_RETURN_IF_ERROR(CheckDonor(c, i));
  }
  RL_RETURN_IF_ERROR(CheckExperts(c.experts));
  RL_RETURN_IF_ERROR(CheckCanvas(c));
  RL_RETURN_IF_ERROR(CheckRopeFactors(c));
  return CheckSuppressed(c.suppress_tokens, c.vocabulary);
}

}  // namespace rullama
