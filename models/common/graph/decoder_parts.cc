#include "models/common/graph/decoder_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/ir/media_names.h"

namespace rullama {
namespace {

// Tokens the file says are never to be generated (begin markers of media and the like).
ValueId Suppress(GraphContext& context, ValueId logits, std::span<const int32_t> ids) {
  const std::vector<float> ban(ids.size(), -std::numeric_limits<float>::infinity());
  const ValueId id_values = context.Synthetic("suppress_tokens.ids", DType::kI32, ids);
  const ValueId bias =
      context.Synthetic("suppress_tokens.bias", DType::kF32, std::span<const float>(ban));
  return context.builder().Add(ops::BiasAdd{.logits = logits, .ids = id_values, .bias = bias},
                               "logits");
}

}  // namespace

std::string LayerName(int64_t layer, std::string_view name) {
  return fmt::format("blk.{}.{}", layer, name);
}

ValueId ScaledEmbedding(GraphContext& context, int64_t width, std::string_view name) {
  GraphBuilder& b = context.builder();
  const ValueId rows = b.Add(
      ops::GatherRows{.table = context.Weight("token_embd.weight"), .ids = context.model().tokens},
      "embd.gather");
  return b.Add(ops::Affine{.x = rows, .scale = std::sqrt(static_cast<float>(width)), .bias = 0},
               name);
}

ValueId EmbeddingWithMedia(GraphContext& context, int64_t width) {
  GraphBuilder& b = context.builder();
  const ValueId soft = b.Input(media_names::kSoft, {DType::kF32, {Dim::T(), width}});
  const ValueId keep = b.Input(media_names::kKeep, {DType::kF32, {Dim::T(), 1}});
  const ValueId tokens = ScaledEmbedding(context, width, "embd.token");
  return b.Add(ops::Sum(b.Add(ops::Product(tokens, keep), "embd.kept"), soft), "embd");
}

ValueId LastSeen(GraphContext& context) {
  return context.builder().Input(media_names::kLastSeen, {DType::kI32, {Dim::T()}});
}

ValueId ProjectHeads(GraphContext& context, int64_t layer, ValueId x, const HeadProjection& p) {
  GraphBuilder& b = context.builder();
  const ValueId flat =
      b.Add(ops::Linear(x, context.Weight(LayerName(layer, p.weight))), p.name + ".project");
  return b.Add(ops::ReshapeTo(flat, {p.heads, p.head_dim}), p.heads_name);
}

ValueId NormAndRotate(GraphContext& context, int64_t layer, ValueId heads, const HeadRotation& r) {
  GraphBuilder& b = context.builder();
  const std::string norm = LayerName(layer, r.norm);
  const ValueId weight = r.other_weights.empty()
                             ? context.Weight(norm)
                             : context.Synthetic(norm + ".other", DType::kF32, r.other_weights);
  const ValueId normed =
      b.Add(ops::RmsNorm{.x = heads, .weight = weight, .eps = r.eps}, r.name + ".norm");
  return b.Add(ops::Rope{.x = normed,
                         .pos = context.model().pos,
                         .freq_factors = r.factors,
                         .theta = r.theta,
                         .n_rot = static_cast<int>(r.n_rot)},
               r.name);
}

int64_t CacheRowsOf(LayerKind kind, int64_t window, const BuildOptions& options) {
  if (kind != LayerKind::kSliding) return options.capacity;
  return std::min(options.capacity, window + options.spare_rows);
}

uint64_t CacheStateBytes(const CacheShape& shape, const BuildOptions& options) {
  const auto elements =
      static_cast<uint64_t>(options.slots * shape.rows * shape.kv_heads * shape.head_dim);
  return RowBytes(options.kv_dtype.keys, elements) + RowBytes(options.kv_dtype.values, elements);
}

LayerCache AddCache(GraphContext& context, int64_t layer, const CacheShape& shape) {
  LayerCache cache;
  const BuildOptions& options = context.options();
  if (!options.caches) return cache;
  const auto state = [&](std::string_view name, DType dtype) {
    return context.builder().State(
        LayerName(layer, name),
        {dtype, {options.slots, shape.rows, shape.kv_heads, shape.head_dim}});
  };
  cache.k_state = state("k", options.kv_dtype.keys);
  cache.v_state = state("v", options.kv_dtype.values);
  return cache;
}

std::string UnroundedName(DType dtype, const std::string& name) {
  return dtype == DType::kF32 ? name : name + ".f32";
}

void SetFreshRows(GraphContext& context, int64_t layer, ValueId k, ValueId v, LayerCache& cache) {
  const auto rounded = [&](ValueId heads, DType dtype, std::string_view name) {
    if (dtype == DType::kF32) return heads;
    return context.builder().Add(ops::Cast{.x = heads, .dtype = dtype}, LayerName(layer, name));
  };
  cache.k_new = rounded(k, context.options().kv_dtype.keys, "attn.k");
  cache.v_new = rounded(v, context.options().kv_dtype.values, "attn.v");
}

void AppendFreshRows(GraphContext& context, int64_t layer, const LayerCache& cache) {
  const ModelGraph& model = context.model();
  GraphBuilder& b = context.builder();
  b.Add(
      ops::StateAppend{
          .state = cache.k_state, .rows = cache.k_new, .pos = model.pos, .slot = model.slot},
      LayerName(layer, "k.next"));
  b.Add(
      ops::StateAppend{
          .state = cache.v_state, .rows = cache.v_new, .pos = model.pos, .slot = model.slot},
      LayerName(layer, "v.next"));
}

ValueId EndAttention(GraphContext& context, int64_t layer, ValueId hidden, ValueId mix,
                     int64_t width, float eps) {
  GraphBuilder& b = context.builder();
  const ValueId flat = b.Add(ops::ReshapeTo(mix, {width}), LayerName(layer, "attn.mix.flat"));
  const ValueId out =
      b.Add(ops::Linear(flat, context.Weight(LayerName(layer, "attn_output.weight"))),
            LayerName(layer, "attn.out"));
  return b.Add(
      ops::ResidualNorm{.residual = hidden,
                        .x = out,
                        .weight = context.Weight(LayerName(layer, "post_attention_norm.weight")),
                        .eps = eps},
      LayerName(layer, "attn.residual"));
}

ValueId DenseFeedForward(GraphContext& context, int64_t layer, ValueId hidden, float eps) {
  GraphBuilder& b = context.builder();
  const auto weight = [&](std::string_view name) { return context.Weight(LayerName(layer, name)); };
  const ValueId x =
      b.Add(ops::RmsNorm{.x = hidden, .weight = weight("ffn_norm.weight"), .eps = eps},
            LayerName(layer, "ffn.norm"));
  const ValueId glu = b.Add(
      ops::GeGluLinear{
          .x = x, .gate_weight = weight("ffn_gate.weight"), .up_weight = weight("ffn_up.weight")},
      LayerName(layer, "ffn.glu"));
  return b.Add(ops::Linear(glu, weight("ffn_down.weight")), LayerName(layer, "ffn.down"));
}

ValueId FinalNorm(GraphContext& context, ValueId hidden, float eps) {
  const ValueId x = context.builder().Add(
      ops::RmsNorm{.x = hidden, .weight = context.Weight("output_norm.weight"), .eps = eps},
      "output.norm");
  context.model().last_norm = x;
  return x;
}

ValueId BuildHead(GraphContext& context, ValueId hidden, const OutputHead& head) {
  GraphBuilder& b = context.builder();
  const bool suppress = !head.suppress.empty();
  const bool cap = head.softcap > 0;
  const ValueId x = FinalNorm(context, hidden, head.eps);
  ValueId weight = context.OptionalWeight("output.weight");
  if (weight == kNoValue) weight = context.Weight("token_embd.weight");
  context.model().head = {.weight = weight, .softcap = head.softcap};
  const bool done = !cap && !suppress;
  ValueId logits = b.Add(ops::Linear(x, weight), done ? "logits" : "output.project");
  if (cap) {
    logits = b.Add(ops::Softcap{.x = logits, .cap = head.softcap},
                   suppress ? "output.softcap" : "logits");
  }
  return suppress ? Suppress(context, logits, head.suppress) : logits;
}

}  // namespace rullama
