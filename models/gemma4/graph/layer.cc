// One decoder layer: attention, gated feed-forward with or without a mixture of experts, per-layer
// injection and output scale.
#include <cmath>
#include <string>
#include <utility>

#include "models/gemma4/graph/build_context.h"

namespace rullama::gemma4 {

LayerStack::LayerStack(ModelBuildContext& context) : context_(context) {
  const Gemma4Config& c = context.config();
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    caches_[c.layer(i).cache_layer].last_reader = i;
    if (!c.OwnsCache(i)) continue;
    static_cast<LayerCache&>(caches_[i]) =
        AddCache(context, i, CacheShapeOf(c, context.options(), i));
  }
}

ValueId LayerStack::Rotate(int64_t index, ValueId heads, std::string_view norm, std::string name) {
  const Gemma4Config& c = context_.config();
  const bool sliding = c.layer(index).kind == LayerKind::kSliding;
  return NormAndRotate(context_, index, heads,
                       {.norm = norm,
                        .eps = c.rms_eps,
                        .theta = sliding ? c.rope_base_sliding : c.rope_base_global,
                        .n_rot = c.n_rot(c.layer(index).kind),
                        .factors = sliding ? kNoValue : context_.RopeFactors(c.rope_factors),
                        .name = std::move(name)});
}

ValueId LayerStack::Queries(int64_t index, ValueId x) {
  const Gemma4Config& c = context_.config();
  const std::string name = LayerName(index, "attn.q");
  const ValueId heads = ProjectHeads(context_, index, x,
                                     {.weight = "attn_q.weight",
                                      .heads = c.heads,
                                      .head_dim = c.layer(index).head_dim,
                                      .name = name,
                                      .heads_name = name + ".heads"});
  return Rotate(index, heads, "attn_q_norm.weight", name);
}

void LayerStack::FillCache(int64_t index, ValueId x) {
  const Gemma4Config& c = context_.config();
  const Gemma4Layer& layer = c.layer(index);
  const auto project = [&](std::string_view weight, const std::string& name) {
    return ProjectHeads(context_, index, x,
                        {.weight = weight,
                         .heads = layer.kv_heads,
                         .head_dim = layer.head_dim,
                         .name = name,
                         .heads_name = name + ".heads"});
  };
  const CacheTypes& types = context_.options().kv_dtype;
  const std::string k_name = LayerName(index, "attn.k");
  const std::string v_name = LayerName(index, "attn.v");
  const ValueId k_heads = project("attn_k.weight", k_name);
  const ValueId v_heads = layer.k_eq_v ? k_heads : project("attn_v.weight", v_name);
  const ValueId k = Rotate(index, k_heads, "attn_k_norm.weight", UnroundedName(types.keys, k_name));
  const ValueId v = context_.builder().Add(ops::RmsNorm{.x = v_heads, .eps = c.rms_eps},
                                           UnroundedName(types.values, v_name));
  SetFreshRows(context_, index, k, v, caches_[index]);
}

void LayerStack::AppendCache(int64_t index) {
  // The keys and values of a canvas are those of one step.
  if (context_.canvas() || !context_.options().caches) return;
  // Every reader of the old version comes first in the graph.
  const int64_t owner = context_.config().layer(index).cache_layer;
  const Cache& cache = caches_[owner];
  if (cache.last_reader != index) return;
  AppendFreshRows(context_, owner, cache);
}

ValueId LayerStack::Attention(int64_t index, ValueId hidden) {
  const Gemma4Config& c = context_.config();
  const Gemma4Layer& layer = c.layer(index);
  GraphBuilder& b = context_.builder();
  const ValueId x =
      b.Add(ops::RmsNorm{.x = hidden,
                         .weight = context_.Weight(LayerName(index, "attn_norm.weight")),
                         .eps = c.rms_eps},
            LayerName(index, "attn.norm"));
  const ValueId q = Queries(index, x);
  if (c.OwnsCache(index)) FillCache(index, x);
  const Cache& cache = caches_[layer.cache_layer];
  const bool sliding = layer.kind == LayerKind::kSliding;
  // Rows of an encoder see each other: all of them, or those from the window's first to last_seen.
  const bool whole = context_.canvas() || (c.encodes() && !sliding);
  const int64_t window = c.encodes() ? c.radius() + 1 : c.sliding_window;
  const ValueId mix =
      b.Add(ops::WithRows(ops::Attention{.q = q,
                                         .k_new = cache.k_new,
                                         .v_new = cache.v_new,
                                         .k_state = cache.k_state,
                                         .v_state = cache.v_state,
                                         .q_end = sliding ? context_.last_seen() : kNoValue,
                                         .mask = whole ? RL_MASK_CANVAS : RL_MASK_CAUSAL,
                                         .window = sliding ? window : 0,
                                         .scale = kGemma4AttentionScale},
                          context_.model().attention_rows),
            LayerName(index, "attn.mix"));
  AppendCache(index);
  return EndAttention(context_, index, hidden, mix, c.heads * layer.head_dim, c.rms_eps);
}

LayerStack::Routes LayerStack::Route(int64_t index, ValueId hidden) {
  const Gemma4Config& c = context_.config();
  GraphBuilder& b = context_.builder();
  // The scale takes the place of the norm's weight. The other factor of a router's input, of which
  // all scores have one, waits for the few that are chosen.
  const ValueId x =
      b.Add(ops::RmsNorm{.x = hidden,
                         .weight = context_.OptionalWeight(LayerName(index, "ffn_gate_inp.scale")),
                         .eps = c.rms_eps},
            LayerName(index, "moe.router.norm"));
  const ValueId scores =
      b.Add(ops::Linear(x, context_.Weight(LayerName(index, "ffn_gate_inp.weight"))),
            LayerName(index, "moe.router"));
  const auto chosen =
      b.Add(ops::TopK{.x = scores, .k = c.experts.used}, LayerName(index, "moe.chosen"));
  const ValueId logits = b.Add(
      ops::Affine{
          .x = chosen.values, .scale = 1 / std::sqrt(static_cast<float>(c.width)), .bias = 0},
      LayerName(index, "moe.logits"));
  // The k largest of a softmax, divided by their sum, are the softmax of the k largest logits.
  return {b.Add(ops::Softmax{logits}, LayerName(index, "moe.weights")), chosen.indices};
}

// The dense feed-forward and the experts in parallel, each followed by a norm.
ValueId LayerStack::MixtureOfExperts(int64_t index, ValueId hidden, ValueId dense) {
  const float eps = context_.config().rms_eps;
  GraphBuilder& b = context_.builder();
  const auto weight = [&](std::string_view suffix) {
    return context_.Weight(LayerName(index, suffix));
  };
  const Routes routes = Route(index, hidden);
  const ValueId x =
      b.Add(ops::RmsNorm{.x = hidden, .weight = weight("pre_ffw_norm_2.weight"), .eps = eps},
            LayerName(index, "moe.norm"));
  const bool fused = context_.config().experts.fused_gate_up;
  const ValueId experts = b.Add(
      ops::MoeFfn{.x = x,
                  .weights = routes.weights,
                  .experts = routes.experts,
                  .gate_weight = weight(fused ? "ffn_gate_up_exps.weight" : "ffn_gate_exps.weight"),
                  .up_weight = fused ? kNoValue : weight("ffn_up_exps.weight"),
                  .down_weight = weight("ffn_down_exps.weight"),
                  .expert_scale = context_.OptionalWeight(LayerName(index, "ffn_down_exps.scale"))},
      LayerName(index, "moe.experts"));
  const ValueId normed =
      b.Add(ops::RmsNorm{.x = dense, .weight = weight("post_ffw_norm_1.weight"), .eps = eps},
            LayerName(index, "ffn.dense"));
  return b.Add(
      ops::ResidualNorm{
          .residual = normed, .x = experts, .weight = weight("post_ffw_norm_2.weight"), .eps = eps},
      LayerName(index, "ffn.sum"));
}

ValueId LayerStack::FeedForward(int64_t index, ValueId hidden, ValueId scale) {
  GraphBuilder& b = context_.builder();
  ValueId out = DenseFeedForward(context_, index, hidden, context_.config().rms_eps);
  if (context_.config().experts.count > 0) out = MixtureOfExperts(index, hidden, out);
  const bool last = context_.config().ple_dim == 0;
  return b.Add(
      ops::ResidualNorm{.residual = hidden,
                        .x = out,
                        .weight = context_.Weight(LayerName(index, "post_ffw_norm.weight")),
                        .scale = scale,
                        .eps = context_.config().rms_eps},
      LayerName(index, last ? "out" : "ffn.residual"));
}

ValueId LayerStack::Build(int64_t index, ValueId hidden, ValueId per_layer_input) {
  const Gemma4Config& c = context_.config();
  // The scale multiplies the whole residual stream, so it belongs to the layer's last op.
  // A model that denoises has one of its own for the causal pass.
  const bool encodes = c.denoises() && !context_.canvas();
  const ValueId scale = context_.OptionalWeight(
      LayerName(index, encodes ? "enc_layer_output_scale.weight" : "layer_output_scale.weight"));
  hidden = Attention(index, hidden);
  if (c.ple_dim == 0) return FeedForward(index, hidden, scale);
  hidden = FeedForward(index, hidden, kNoValue);
  return context_.builder().Add(
      ops::PleInject{.x = hidden,
                     .ple = per_layer_input,
                     .gate_weight = context_.Weight(LayerName(index, "inp_gate.weight")),
                     .proj_weight = context_.Weight(LayerName(index, "proj.weight")),
                     .norm_weight = context_.Weight(LayerName(index, "post_norm.weight")),
                     .scale = scale,
                     .eps = c.rms_eps},
      LayerName(index, "out"));
}

}  // namespace rullama::gemma4
