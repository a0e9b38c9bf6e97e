#include "models/gemma3/graph/model.h"

#include <rullama/sdk/cache_rows.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ir/encoder_names.h"
#include "models/common/graph/decoder_parts.h"

namespace rullama {
namespace {

CacheShape CacheShapeOf(const Gemma3Config& config, const BuildOptions& options, int64_t layer) {
  return {.rows = CacheRowsOf(config.kind(layer), config.sliding_window, options),
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim};
}

// One decoder layer after another.
class Gemma3Layers {
 public:
  Gemma3Layers(GraphContext& context, const Gemma3Config& config,
               std::span<const HeadNorms> balanced)
      : context_(context), config_(config) {
    if (sdk::IsBlockCacheType(context.options().kv_dtype.keys)) norms_ = balanced;
    const bool media = context.options().pass == ModelPass::kMedia;
    if (config.encodes || media) last_seen_ = LastSeen(context);
  }

  // Returns the residual stream after the layer, from that before it.
  ValueId Build(int64_t layer, ValueId hidden) {
    hidden = Attention(layer, hidden);
    const ValueId out = DenseFeedForward(context_, layer, hidden, config_.rms_eps);
    return context_.builder().Add(
        ops::ResidualNorm{.residual = hidden,
                          .x = out,
                          .weight = context_.Weight(LayerName(layer, "post_ffw_norm.weight")),
                          .eps = config_.rms_eps},
        LayerName(layer, "out"));
  }

 private:
  ValueId Project(int64_t layer, ValueId x, std::string_view weight, int64_t heads,
                  std::string name, std::string heads_name) {
    return ProjectHeads(context_, layer, x,
                        {.weight = weight,
                         .heads = heads,
                         .head_dim = config_.head_dim,
                         .name = std::move(name),
                         .heads_name = std::move(heads_name)});
  }

  // `weights`: of the norm, if not those of the file.
  ValueId Rotate(int64_t layer, ValueId heads, std::string_view norm,
                 std::span<const float> weights, std::string name) {
    const bool sliding = config_.kind(layer) == LayerKind::kSliding;
    return NormAndRotate(context_, layer, heads,
                         {.norm = norm,
                          .other_weights = weights,
                          .eps = config_.rms_eps,
                          .theta = sliding ? config_.rope_base_sliding : config_.rope_base_global,
                          .n_rot = config_.head_dim,
                          .factors = sliding ? kNoValue : GlobalRopeFactors(),
                          .name = std::move(name)});
  }

  // Linear scaling: dividing every frequency is dividing the positions.
  ValueId GlobalRopeFactors() {
    if (config_.rope_scaling_global == 1) return kNoValue;
    const std::vector<float> factors(static_cast<size_t>(config_.head_dim / 2),
                                     config_.rope_scaling_global);
    return context_.RopeFactors(factors);
  }

  // All rows, or those of the radius to each side: the window ends `radius` rows before a row, and
  // last_seen lies as many after it.
  void SeeBothWays(bool sliding, ops::Attention& attention) const {
    if (!sliding) {
      attention.mask = RL_MASK_CANVAS;
      return;
    }
    attention.q_end = last_seen_;
    attention.window = config_.radius() + 1;
  }

  ValueId Attention(int64_t layer, ValueId hidden) {
    GraphBuilder& b = context_.builder();
    const std::string q_name = LayerName(layer, "attn.q");
    const std::string k_name = LayerName(layer, "attn.k");
    const std::string v_name = LayerName(layer, "attn.v");
    const CacheTypes& types = context_.options().kv_dtype;
    LayerCache cache = AddCache(context_, layer, CacheShapeOf(config_, context_.options(), layer));
    const ValueId x =
        b.Add(ops::RmsNorm{.x = hidden,
                           .weight = context_.Weight(LayerName(layer, "attn_norm.weight")),
                           .eps = config_.rms_eps},
              LayerName(layer, "attn.norm"));
    const ValueId q_heads =
        Project(layer, x, "attn_q.weight", config_.heads, q_name, q_name + ".heads");
    const ValueId k_heads =
        Project(layer, x, "attn_k.weight", config_.kv_heads, k_name, k_name + ".heads");
    const ValueId v = Project(layer, x, "attn_v.weight", config_.kv_heads, v_name,
                              UnroundedName(types.values, v_name));
    const HeadNorms norms = norms_.empty() ? HeadNorms() : norms_[static_cast<size_t>(layer)];
    const ValueId q = Rotate(layer, q_heads, "attn_q_norm.weight", norms.queries, q_name);
    const ValueId k =
        Rotate(layer, k_heads, "attn_k_norm.weight", norms.keys, UnroundedName(types.keys, k_name));
    SetFreshRows(context_, layer, k, v, cache);
    const bool sliding = config_.kind(layer) == LayerKind::kSliding;
    ops::Attention attention{.q = q,
                             .k_new = cache.k_new,
                             .v_new = cache.v_new,
                             .k_state = cache.k_state,
                             .v_state = cache.v_state,
                             .mask = RL_MASK_CAUSAL,
                             .window = sliding ? config_.sliding_window : 0,
                             .scale = config_.attention_scale()};
    if (config_.encodes) {
      SeeBothWays(sliding, attention);
    } else {
      attention.q_end = last_seen_;
    }
    const ValueId mix = b.Add(ops::WithRows(attention, context_.model().attention_rows),
                              LayerName(layer, "attn.mix"));
    if (context_.options().caches) AppendFreshRows(context_, layer, cache);
    return EndAttention(context_, layer, hidden, mix, config_.heads * config_.head_dim,
                        config_.rms_eps);
  }

  GraphContext& context_;
  const Gemma3Config& config_;
  std::span<const HeadNorms> norms_;  // instead of those of the file, unless there are none
  // The last position that a row sees, i32[T]; none: its own.
  ValueId last_seen_ = kNoValue;
};

GraphLimits LimitsOf(const Gemma3Config& config) {
  return {.context_length = config.context_length,
          .takes_media = config.takes_media(),
          .encodes = config.encodes};
}

std::string_view GraphNameOf(ModelPass pass) {
  if (pass == ModelPass::kMedia) return "gemma3.media";
  return pass == ModelPass::kEncode ? "embeddinggemma" : "gemma3";
}

}  // namespace

uint64_t CacheBytes(const Gemma3Config& config, const BuildOptions& options) {
  uint64_t bytes = 0;
  for (int64_t i = 0; i < config.layers; ++i) {
    bytes += CacheStateBytes(CacheShapeOf(config, options, i), options);
  }
  return bytes;
}

Result<ModelGraph> BuildModel(const Gemma3Config& config, const ModelWeights& weights,
                              const BuildOptions& options, std::span<const HeadNorms> balanced) {
  RL_ASSIGN_OR_RETURN(ModelGraph model,
                      BeginModelGraph(GraphNameOf(options.pass), LimitsOf(config), options));
  GraphContext context(weights, options, model);
  ValueId hidden = options.pass == ModelPass::kMedia
                       ? EmbeddingWithMedia(context, config.width)
                       : ScaledEmbedding(context, config.width, "embd");
  model.hidden.push_back(hidden);
  Gemma3Layers layers(context, config, balanced);
  for (int64_t i = 0; i < config.layers; ++i) {
    hidden = layers.Build(i, hidden);
    model.hidden.push_back(hidden);
  }
  if (config.encodes) {
    FinalNorm(context, hidden, config.rms_eps);
    return model;
  }
  model.logits =
      BuildHead(context, hidden, {.eps = config.rms_eps, .suppress = config.suppress_tokens});
  return model;
}

Result<ModelGraph> BuildDenseHead(const Gemma3Config& config, const ModelWeights& weights) {
  const BuildOptions options{
      .pass = ModelPass::kEncode, .capacity = config.context_length, .caches = false};
  RL_ASSIGN_OR_RETURN(ModelGraph model,
                      EmptyModelGraph("embeddinggemma.head", LimitsOf(config), options));
  GraphContext context(weights, options, model);
  GraphBuilder& b = model.builder;
  const ValueId mean = b.Input(encoder_names::kMean, {DType::kF32, {Dim::T(), config.width}});
  const ValueId wide = b.Add(ops::Linear(mean, context.Weight("dense_2.weight")), "dense_2");
  const ValueId embedding =
      b.Add(ops::Linear(wide, context.Weight("dense_3.weight")), encoder_names::kEmbedding);
  b.Output(encoder_names::kEmbedding, embedding, RowDemand::kAll);
  return model;
}

}  // namespace rullama
