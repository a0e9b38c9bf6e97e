// One decoder layer: attention, gated feed-forward with or without a mixture of experts, per-layer
// injection and output scale.
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "models/gemma4/graph/build_context.h"

namespace rullama::gemma4 {
namespace {

// Queries and keys are normalised per head, which takes the place of 1/sqrt(head_dim).
constexpr float kAttentionScale = 1.0F;

}  // namespace

LayerStack::LayerStack(ModelBuildContext& context) : context_(context) {
  const Gemma4Config& c = context.config();
  const BuildOptions& options = context.options();
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    caches_[c.layer(i).cache_layer].last_reader = i;
    if (!c.OwnsCache(i) || !options.caches) continue;
    const TensorType type(options.kv_dtype, {options.slots, CacheRows(c, options, i),
                                             c.layer(i).kv_heads, c.layer(i).head_dim});
    caches_[i].k_state = context.builder().State(Name(i, "k"), type);
    caches_[i].v_state = context.builder().State(Name(i, "v"), type);
  }
}

std::string LayerStack::Name(int64_t index, std::string_view suffix) const {
  return fmt::format("blk.{}.{}", index, suffix);
}

ValueId LayerStack::NormAndRotate(int64_t index, ValueId heads, std::string_view norm,
                                  std::string_view name) {
  const Gemma4Config& c = context_.config();
  GraphBuilder& b = context_.builder();
  const bool sliding = c.layer(index).kind == LayerKind::kSliding;
  const ValueId normed = b.Add(
      ops::RmsNorm{.x = heads, .weight = context_.Weight(Name(index, norm)), .eps = c.rms_eps},
      Name(index, fmt::format("{}.norm", name)));
  return b.Add(ops::Rope{.x = normed,
                         .pos = context_.model().pos,
                         .freq_factors = sliding ? kNoValue : context_.RopeFactors(),
                         .theta = sliding ? c.rope_base_sliding : c.rope_base_global,
                         .n_rot = static_cast<int>(c.n_rot(c.layer(index).kind))},
               Name(index, name));
}

ValueId LayerStack::Queries(int64_t index, ValueId x) {
  const Gemma4Config& c = context_.config();
  GraphBuilder& b = context_.builder();
  const ValueId flat = b.Add(ops::Linear(x, context_.Weight(Name(index, "attn_q.weight"))),
                             Name(index, "attn.q.project"));
  const ValueId heads =
      b.Add(ops::ReshapeTo(flat, {c.heads, c.layer(index).head_dim}), Name(index, "attn.q.heads"));
  return NormAndRotate(index, heads, "attn_q_norm.weight", "attn.q");
}

void LayerStack::FillCache(int64_t index, ValueId x) {
  const Gemma4Config& c = context_.config();
  const Gemma4Layer& layer = c.layer(index);
  const DType kv_dtype = context_.options().kv_dtype;
  GraphBuilder& b = context_.builder();
  const auto project = [&](std::string_view weight, const std::string& name) {
    const ValueId flat =
        b.Add(ops::Linear(x, context_.Weight(Name(index, weight))), name + ".project");
    return b.Add(ops::ReshapeTo(flat, {layer.kv_heads, layer.head_dim}), name + ".heads");
  };
  // Suffix of the f32 values when the cache has a type of its own.
  const bool round = kv_dtype != DType::kF32;
  const std::string full = round ? ".f32" : "";
  const std::string k_name = Name(index, "attn.k");
  const std::string v_name = Name(index, "attn.v");

  const ValueId k_heads = project("attn_k.weight", k_name);
  const ValueId v_heads = layer.k_eq_v ? k_heads : project("attn_v.weight", v_name);
  ValueId k = NormAndRotate(index, k_heads, "attn_k_norm.weight", "attn.k" + full);
  ValueId v = b.Add(ops::RmsNorm{.x = v_heads, .eps = c.rms_eps}, v_name + full);
  if (round) {
    k = b.Add(ops::Cast{.x = k, .dtype = kv_dtype}, k_name);
    v = b.Add(ops::Cast{.x = v, .dtype = kv_dtype}, v_name);
  }
  caches_[index].k_new = k;
  caches_[index].v_new = v;
}

void LayerStack::AppendCache(int64_t index) {
  // The keys and values of a canvas are those of one step.
  if (context_.canvas() || !context_.options().caches) return;
  // Every reader of the old version comes first in the graph.
  const int64_t owner = context_.config().layer(index).cache_layer;
  const Cache& cache = caches_[owner];
  if (cache.last_reader != index) return;
  const ModelGraph& model = context_.model();
  GraphBuilder& b = context_.builder();
  b.Add(
      ops::StateAppend{
          .state = cache.k_state, .rows = cache.k_new, .pos = model.pos, .slot = model.slot},
      Name(owner, "k.next"));
  b.Add(
      ops::StateAppend{
          .state = cache.v_state, .rows = cache.v_new, .pos = model.pos, .slot = model.slot},
      Name(owner, "v.next"));
}

ValueId LayerStack::Attention(int64_t index, ValueId hidden) {
  const Gemma4Config& c = context_.config();
  const Gemma4Layer& layer = c.layer(index);
  GraphBuilder& b = context_.builder();
  const ValueId x = b.Add(ops::RmsNorm{.x = hidden,
                                       .weight = context_.Weight(Name(index, "attn_norm.weight")),
                                       .eps = c.rms_eps},
                          Name(index, "attn.norm"));
  const ValueId q = Queries(index, x);
  if (c.OwnsCache(index)) FillCache(index, x);
  const Cache& cache = caches_[layer.cache_layer];
  const int64_t window = layer.kind == LayerKind::kSliding ? c.sliding_window : 0;
  const ValueId mix = b.Add(
      ops::WithRows(ops::Attention{.q = q,
                                   .k_new = cache.k_new,
                                   .v_new = cache.v_new,
                                   .k_state = cache.k_state,
                                   .v_state = cache.v_state,
                                   .mask = context_.canvas() ? RL_MASK_CANVAS : RL_MASK_CAUSAL,
                                   .window = window,
                                   .scale = kAttentionScale},
                    context_.model().attention_rows),
      Name(index, "attn.mix"));
  AppendCache(index);
  const ValueId flat =
      b.Add(ops::ReshapeTo(mix, {c.heads * layer.head_dim}), Name(index, "attn.mix.flat"));
  const ValueId out = b.Add(ops::Linear(flat, context_.Weight(Name(index, "attn_output.weight"))),
                            Name(index, "attn.out"));
  return b.Add(
      ops::ResidualNorm{.residual = hidden,
                        .x = out,
                        .weight = context_.Weight(Name(index, "post_attention_norm.weight")),
                        .eps = c.rms_eps},
      Name(index, "attn.residual"));
}

ValueId LayerStack::DenseFeedForward(int64_t index, ValueId hidden) {
  GraphBuilder& b = context_.builder();
  const ValueId x = b.Add(ops::RmsNorm{.x = hidden,
                                       .weight = context_.Weight(Name(index, "ffn_norm.weight")),
                                       .eps = context_.config().rms_eps},
                          Name(index, "ffn.norm"));
  const ValueId glu =
      b.Add(ops::GeGluLinear{.x = x,
                             .gate_weight = context_.Weight(Name(index, "ffn_gate.weight")),
                             .up_weight = context_.Weight(Name(index, "ffn_up.weight"))},
            Name(index, "ffn.glu"));
  return b.Add(ops::Linear(glu, context_.Weight(Name(index, "ffn_down.weight"))),
               Name(index, "ffn.down"));
}

LayerStack::Routes LayerStack::Route(int64_t index, ValueId hidden) {
  const Gemma4Config& c = context_.config();
  GraphBuilder& b = context_.builder();
  // The scale takes the place of the norm's weight. The other factor of a router's input, of which
  // all scores have one, waits for the few that are chosen.
  const ValueId x =
      b.Add(ops::RmsNorm{.x = hidden,
                         .weight = context_.OptionalWeight(Name(index, "ffn_gate_inp.scale")),
                         .eps = c.rms_eps},
            Name(index, "moe.router.norm"));
  const ValueId scores = b.Add(ops::Linear(x, context_.Weight(Name(index, "ffn_gate_inp.weight"))),
                               Name(index, "moe.router"));
  const auto chosen = b.Add(ops::TopK{.x = scores, .k = c.experts.used}, Name(index, "moe.chosen"));
  const ValueId logits = b.Add(
      ops::Affine{
          .x = chosen.values, .scale = 1 / std::sqrt(static_cast<float>(c.width)), .bias = 0},
      Name(index, "moe.logits"));
  // The k largest of a softmax, divided by their sum, are the softmax of the k largest logits.
  return {b.Add(ops::Softmax{logits}, Name(index, "moe.weights")), chosen.indices};
}

// The dense feed-forward and the experts side by side, each with a norm behind it.
ValueId LayerStack::MixtureOfExperts(int64_t index, ValueId hidden, ValueId dense) {
  const float eps = context_.config().rms_eps;
  GraphBuilder& b = context_.builder();
  const auto weight = [&](std::string_view suffix) { return context_.Weight(Name(index, suffix)); };
  const Routes routes = Route(index, hidden);
  const ValueId x =
      b.Add(ops::RmsNorm{.x = hidden, .weight = weight("pre_ffw_norm_2.weight"), .eps = eps},
            Name(index, "moe.norm"));
  const bool fused = context_.config().experts.fused_gate_up;
  const ValueId experts = b.Add(
      ops::MoeFfn{.x = x,
                  .weights = routes.weights,
                  .experts = routes.experts,
                  .gate_weight = weight(fused ? "ffn_gate_up_exps.weight" : "ffn_gate_exps.weight"),
                  .up_weight = fused ? kNoValue : weight("ffn_up_exps.weight"),
                  .down_weight = weight("ffn_down_exps.weight"),
                  .expert_scale = context_.OptionalWeight(Name(index, "ffn_down_exps.scale"))},
      Name(index, "moe.experts"));
  const ValueId normed =
      b.Add(ops::RmsNorm{.x = dense, .weight = weight("post_ffw_norm_1.weight"), .eps = eps},
            Name(index, "ffn.dense"));
  return b.Add(
      ops::ResidualNorm{
          .residual = normed, .x = experts, .weight = weight("post_ffw_norm_2.weight"), .eps = eps},
      Name(index, "ffn.sum"));
}

ValueId LayerStack::FeedForward(int64_t index, ValueId hidden, ValueId scale) {
  GraphBuilder& b = context_.builder();
  ValueId out = DenseFeedForward(index, hidden);
  if (context_.config().experts.count > 0) out = MixtureOfExperts(index, hidden, out);
  const bool last = context_.config().ple_dim == 0;
  return b.Add(ops::ResidualNorm{.residual = hidden,
                                 .x = out,
                                 .weight = context_.Weight(Name(index, "post_ffw_norm.weight")),
                                 .scale = scale,
                                 .eps = context_.config().rms_eps},
               Name(index, last ? "out" : "ffn.residual"));
}

ValueId LayerStack::Build(int64_t index, ValueId hidden, ValueId per_layer_input) {
  const Gemma4Config& c = context_.config();
  // The scale multiplies the whole residual stream, so it belongs to the layer's last op.
  // A model that denoises has one of its own for the causal pass.
  const bool encodes = c.denoises() && !context_.canvas();
  const ValueId scale = context_.OptionalWeight(
      Name(index, encodes ? "enc_layer_output_scale.weight" : "layer_output_scale.weight"));
  hidden = Attention(index, hidden);
  if (c.ple_dim == 0) return FeedForward(index, hidden, scale);
  hidden = FeedForward(index, hidden, kNoValue);
  return context_.builder().Add(
      ops::PleInject{.x = hidden,
                     .ple = per_layer_input,
                     .gate_weight = context_.Weight(Name(index, "inp_gate.weight")),
                     .proj_weight = context_.Weight(Name(index, "proj.weight")),
                     .norm_weight = context_.Weight(Name(index, "post_norm.weight")),
                     .scale = scale,
                     .eps = c.rms_eps},
      Name(index, "out"));
}

}  // namespace rullama::gemma4
