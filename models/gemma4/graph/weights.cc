#include "models/gemma4/graph/weights.h"

#include <utility>

namespace rullama {
namespace {

void AddAttention(const Gemma4Config& c, int64_t index, LayerTable& table) {
  const Gemma4Layer& layer = c.layer(index);
  const int64_t q_width = c.heads * layer.head_dim;
  const int64_t kv_width = layer.kv_heads * layer.head_dim;
  const Presence kv = c.OwnsCache(index) ? Presence::kRequired : Presence::kUnused;
  table.Add("attn_norm.weight", {c.width});
  table.Add("attn_q.weight", {q_width, c.width});
  table.Add("attn_q_norm.weight", {layer.head_dim});
  table.Add("attn_k.weight", {kv_width, c.width}, kv);
  table.Add("attn_k_norm.weight", {layer.head_dim}, kv);
  if (!layer.k_eq_v) table.Add("attn_v.weight", {kv_width, c.width}, kv);
  table.Add("attn_output.weight", {c.width, q_width});
  table.Add("post_attention_norm.weight", {c.width}, Presence::kRequired,
            {"attn_post_norm.weight"});
}

void AddExperts(const Gemma4Config& c, LayerTable& table) {
  const Gemma4Experts& e = c.experts;
  if (e.count == 0) return;
  table.Add("ffn_gate_inp.weight", {e.count, c.width});
  table.Add("ffn_gate_inp.scale", {c.width}, Presence::kUsual);
  table.Add("pre_ffw_norm_2.weight", {c.width}, Presence::kRequired, {"ffn_pre_norm_2.weight"});
  table.Add("post_ffw_norm_1.weight", {c.width}, Presence::kRequired, {"ffn_post_norm_1.weight"});
  table.Add("post_ffw_norm_2.weight", {c.width}, Presence::kRequired, {"ffn_post_norm_2.weight"});
  if (e.fused_gate_up) {
    table.Add("ffn_gate_up_exps.weight", {e.count, 2 * e.ffn_width, c.width});
  } else {
    table.Add("ffn_gate_exps.weight", {e.count, e.ffn_width, c.width});
    table.Add("ffn_up_exps.weight", {e.count, e.ffn_width, c.width});
  }
  table.Add("ffn_down_exps.weight", {e.count, c.width, e.ffn_width});
  table.Add("ffn_down_exps.scale", {e.count}, Presence::kUsual, {"ffn_gate_inp.per_expert_scale"});
}

void AddInjection(const Gemma4Config& c, LayerTable& table) {
  if (c.ple_dim > 0) {
    table.Add("inp_gate.weight", {c.ple_dim, c.width});
    table.Add("proj.weight", {c.width, c.ple_dim});
    table.Add("post_norm.weight", {c.width});
  }
  table.Add("layer_output_scale.weight", {1}, c.denoises() ? Presence::kRequired : Presence::kUsual,
            {"layer_scalar.weight", "layer_scalar"});
  if (c.denoises()) table.Add("enc_layer_output_scale.weight", {1});
}

}  // namespace

std::vector<TensorSpec> ExpectedTensors(const Gemma4Config& c) {
  std::vector<TensorSpec> specs;
  LayerTable outside(specs, "");  // of the layers
  outside.Add("token_embd.weight", {c.vocabulary, c.width});
  if (!c.encodes()) outside.Add("rope_freqs.weight", {c.n_rot_global / 2}, Presence::kUsual);
  if (c.ple_dim > 0) {
    const int64_t ple_width = c.ple_dim * c.layer_count();
    if (!c.encodes()) {
      outside.Add("per_layer_token_embd.weight", {c.vocabulary, ple_width});
    }
    outside.Add("per_layer_model_proj.weight", {ple_width, c.width});
    outside.Add("per_layer_proj_norm.weight", {c.ple_dim});
  }
  if (c.denoises()) {
    const int64_t ffn = c.layer(0).ffn_width;
    outside.Add("self_cond_pre_norm.weight", {c.width});
    outside.Add("self_cond_gate.weight", {ffn, c.width});
    outside.Add("self_cond_up.weight", {ffn, c.width});
    outside.Add("self_cond_down.weight", {c.width, ffn});
  }
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    LayerTable table(specs, i);
    AddAttention(c, i, table);
    table.AddFeedForward(c.width, c.layer(i).ffn_width);
    AddExperts(c, table);
    AddInjection(c, table);
  }
  outside.Add("output_norm.weight", {c.width});
  if (c.encodes()) {
    outside.Add("output.weight", {c.embedding_width, c.width});
  } else {
    outside.Add("output.weight", {c.vocabulary, c.width}, Presence::kOptional);
  }
  return specs;
}

Gemma4Weights Gemma4Weights::Synthetic(const Gemma4Config& config,
                                       const std::function<DType(const TensorSpec&)>& dtype_of) {
  return Gemma4Weights(ModelWeights::Synthetic(ExpectedTensors(config), dtype_of));
}

}  // namespace rullama
