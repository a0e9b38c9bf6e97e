#include "models/gemma4/drafter/partner.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error_of.h"

namespace rullama::gemma4 {
namespace {

using OtherTarget = ErrorOf<ErrorKind::kUsage, "draft.target">;
using OtherWidth = ErrorOf<ErrorKind::kUsage, "draft.width">;
using OtherVocabulary = ErrorOf<ErrorKind::kUsage, "draft.vocabulary">;
using OtherHeads = ErrorOf<ErrorKind::kUsage, "draft.heads">;
using OtherLayers = ErrorOf<ErrorKind::kUsage, "draft.layers">;
using OtherWindow = ErrorOf<ErrorKind::kUsage, "draft.window">;

// The published sizes, whose widths are all different.
constexpr std::array<std::pair<int64_t, std::string_view>, 5> kSizes = {
    {{1536, "E2B"}, {2560, "E4B"}, {3840, "12B"}, {2816, "26B-A4B"}, {5376, "31B"}}};

// "1536 (E2B)"
std::string WidthText(int64_t width) {
  for (const auto& [of_size, name] : kSizes) {
    if (of_size == width) return fmt::format("{} ({})", width, name);
  }
  return fmt::format("{}", width);
}

Status CheckLayer(const DrafterConfig& drafter, int64_t index, const Gemma4Config& target) {
  const Gemma4Layer& layer = drafter.network.layer(index);
  const bool sliding = layer.kind == LayerKind::kSliding;
  const int64_t owner = CacheForDrafter(target, layer.kind);
  if (owner < 0) {
    return OtherLayers(
        "layer {} of the drafter reads the cache of a {} layer, but the model has "
        "none; give the drafter that was made for this model",
        index, sliding ? "sliding" : "global");
  }
  const Gemma4Layer& cache = target.layer(owner);
  const int64_t heads = drafter.network.heads;
  const bool same_count = !drafter.tells_kv_heads || layer.kv_heads == cache.kv_heads;
  if (layer.head_dim != cache.head_dim || heads % cache.kv_heads != 0 || !same_count) {
    return OtherHeads(
        "layer {} of the drafter has {} query heads of {} dims for {} key/value "
        "heads, layer {} of the model caches {} heads of {} dims; give the drafter "
        "that was made for this model",
        index, heads, layer.head_dim, layer.kv_heads, owner, cache.kv_heads, cache.head_dim);
  }
  if (sliding && drafter.network.sliding_window > target.sliding_window) {
    return OtherWindow("the drafter's window has {} tokens, that of the model {}; expected no more",
                       drafter.network.sliding_window, target.sliding_window);
  }
  return OkStatus();
}

}  // namespace

int64_t CacheForDrafter(const Gemma4Config& target, LayerKind kind) {
  for (int64_t i = target.layer_count() - 1; i >= 0; --i) {
    if (target.layer(i).kind == kind) return target.layer(i).cache_layer;
  }
  return -1;
}

Status CheckPartner(const DrafterConfig& drafter, const Gemma4Config& target) {
  if (target.denoises()) {
    return OtherTarget(
        "the model denoises canvases; a drafter needs a Gemma 4 model that predicts "
        "the next token");
  }
  if (drafter.target_width != target.width) {
    return OtherWidth(
        "the drafter was made for a model of width {}, this model has {}; give the "
        "drafter that was made for this model",
        WidthText(drafter.target_width), WidthText(target.width));
  }
  if (drafter.network.vocabulary != target.vocabulary) {
    return OtherVocabulary("the drafter has {} tokens, the model {}; expected the same tokens",
                           drafter.network.vocabulary, target.vocabulary);
  }
  for (int64_t i = 0; i < drafter.network.layer_count(); ++i) {
    RL_RETURN_IF_ERROR(CheckLayer(drafter, i, target));
  }
  return OkStatus();
}

}  // namespace rullama::gemma4
