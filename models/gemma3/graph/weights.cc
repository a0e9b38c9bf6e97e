#include "models/gemma3/graph/weights.h"

#include <string>
#include <utility>

namespace rullama {

std::vector<TensorSpec> ExpectedTensors(const Gemma3Config& c) {
  std::vector<TensorSpec> specs;
  LayerTable outside(specs, "");  // of the layers
  const int64_t q_width = c.heads * c.head_dim;
  const int64_t kv_width = c.kv_heads * c.head_dim;
  outside.Add("token_embd.weight", {c.vocabulary, c.width});
  for (int64_t i = 0; i < c.layers; ++i) {
    LayerTable table(specs, i);
    table.Add("attn_norm.weight", {c.width});
    table.Add("attn_q.weight", {q_width, c.width});
    table.Add("attn_q_norm.weight", {c.head_dim});
    table.Add("attn_k.weight", {kv_width, c.width});
    table.Add("attn_k_norm.weight", {c.head_dim});
    table.Add("attn_v.weight", {kv_width, c.width});
    table.Add("attn_output.weight", {c.width, q_width});
    table.Add("post_attention_norm.weight", {c.width}, Presence::kRequired,
              {"attn_post_norm.weight"});
    table.AddFeedForward(c.width, c.ffn_width);
  }
  outside.Add("output_norm.weight", {c.width});
  if (!c.encodes) {
    outside.Add("output.weight", {c.vocabulary, c.width}, Presence::kOptional);
    return specs;
  }
  specs.back().alternatives = {"norm.weight"};
  if (c.dense_width == 0) return specs;
  outside.Add("dense_2.weight", {c.dense_width, c.width});
  specs.back().alternatives = {"dense.0.weight"};
  outside.Add("dense_3.weight", {c.width, c.dense_width});
  specs.back().alternatives = {"dense.1.weight"};
  return specs;
}

Result<ModelWeights> ReadGemma3Weights(const Gemma3Config& config, const GgufFile& file) {
  return ModelWeights::FromFile(
      ExpectedTensors(config), file,
      {.network = config.encodes ? "EmbeddingGemma" : "Gemma 3 text model", .scales = true});
}

}  // namespace rullama
