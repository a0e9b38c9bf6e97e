#include "models/gemma4/files/synth_metadata.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/common/files/made_up_tokenizer.h"
#include "models/common/graph/hparams.h"

namespace rullama {
namespace {

// The family's markers at their ids; those beyond a small vocabulary are left out.
using Special = MadeUpTokenizer::Special;
constexpr std::array kSpecials = {
    Special{0, "<pad>", TokenType::kControl},
    Special{1, "<eos>", TokenType::kControl},
    Special{2, "<bos>", TokenType::kControl},
    Special{3, "<unk>", TokenType::kUnknown},
    Special{46, "<|tool>", TokenType::kControl},
    Special{47, "<tool|>", TokenType::kControl},
    Special{48, "<|tool_call>", TokenType::kUserDefined},
    Special{49, "<tool_call|>", TokenType::kUserDefined},
    Special{50, "<|tool_response>", TokenType::kUserDefined},
    Special{51, "<tool_response|>", TokenType::kUserDefined},
    Special{52, "<|\"|>", TokenType::kUserDefined},
    Special{98, "<|think|>", TokenType::kControl},
    Special{100, "<|channel>", TokenType::kUserDefined},
    Special{101, "<channel|>", TokenType::kUserDefined},
    Special{105, "<|turn>", TokenType::kControl},
    Special{106, "<turn|>", TokenType::kControl},
    Special{255'999, "<|image>", TokenType::kControl},
    Special{256'000, "<|audio>", TokenType::kControl},
    Special{258'880, "<|image|>", TokenType::kControl},
    Special{258'881, "<|audio|>", TokenType::kControl},
    Special{258'882, "<image|>", TokenType::kControl},
    Special{258'883, "<audio|>", TokenType::kControl},
    Special{258'884, "<|video|>", TokenType::kControl},
};

constexpr MadeUpTokenizer kTokenizer = {
    .model = "gemma4", .lists_merges = true, .specials = kSpecials};

// A number of each layer: one value if they are all the same, else a list, as the converter does.
Status SetPerLayer(GgufWriter& writer, std::string_view key, const std::vector<int32_t>& values) {
  for (const int32_t value : values) {
    if (value != values.front()) return writer.SetArray(key, std::span<const int32_t>(values));
  }
  return writer.Set(key, static_cast<uint32_t>(values.front()));
}

struct LayerLists {
  std::vector<int32_t> ffn, kv_heads;
  std::vector<uint8_t> sliding;
  int64_t head_dim_sliding = 0;
  int64_t head_dim_global = 0;
};

LayerLists ListLayers(const Gemma4Config& config) {
  LayerLists lists;
  for (const Gemma4Layer& layer : config.layers) {
    lists.ffn.push_back(static_cast<int32_t>(layer.ffn_width));
    lists.kv_heads.push_back(static_cast<int32_t>(layer.kv_heads));
    const bool sliding = layer.kind == LayerKind::kSliding;
    lists.sliding.push_back(sliding ? 1 : 0);
    (sliding ? lists.head_dim_sliding : lists.head_dim_global) = layer.head_dim;
  }
  if (lists.head_dim_sliding == 0) lists.head_dim_sliding = lists.head_dim_global;
  return lists;
}

Status WriteCanvas(const CanvasFacts& canvas, GgufWriter& writer) {
  RL_RETURN_IF_ERROR(writer.Set("diffusion-gemma.attention.causal", false));
  const std::pair<std::string_view, int64_t> integers[] = {
      {"canvas_length", canvas.length},
      {"eb_max_steps", canvas.max_steps},
      {"eb_stability_threshold", canvas.stability_threshold}};
  for (const auto& [key, value] : integers) {
    RL_RETURN_IF_ERROR(writer.Set(fmt::format("diffusion.{}", key), static_cast<uint32_t>(value)));
  }
  const std::pair<std::string_view, float> numbers[] = {
      {"eb_t_min", canvas.t_min},
      {"eb_t_max", canvas.t_max},
      {"eb_entropy_bound", canvas.entropy_bound},
      {"eb_confidence_threshold", canvas.confidence_threshold}};
  for (const auto& [key, value] : numbers) {
    RL_RETURN_IF_ERROR(writer.Set(fmt::format("diffusion.{}", key), value));
  }
  return OkStatus();
}

Status WriteHyperparameters(const Gemma4Config& config, std::string_view architecture,
                            GgufWriter& writer) {
  const auto own = [architecture](std::string_view key) {
    return fmt::format("{}.{}", architecture, key);
  };
  const LayerLists lists = ListLayers(config);
  const std::pair<std::string_view, int64_t> integers[] = {
      {"block_count", config.layer_count()},
      {"context_length", config.context_length},
      {"embedding_length", config.width},
      {"embedding_length_per_layer_input", config.ple_dim},
      {"attention.head_count", config.heads},
      {"attention.key_length", lists.head_dim_global},
      {"attention.value_length", lists.head_dim_global},
      {"attention.key_length_swa", lists.head_dim_sliding},
      {"attention.value_length_swa", lists.head_dim_sliding},
      {"attention.sliding_window", config.sliding_window},
      {"attention.shared_kv_layers", config.layer_count() - config.first_shared_layer()},
      {"rope.dimension_count", config.n_rot_global},
      {"rope.dimension_count_swa", config.n_rot_sliding},
  };
  for (const auto& [key, value] : integers) {
    RL_RETURN_IF_ERROR(writer.Set(own(key), static_cast<uint32_t>(value)));
  }
  RL_RETURN_IF_ERROR(SetPerLayer(writer, own("feed_forward_length"), lists.ffn));
  RL_RETURN_IF_ERROR(SetPerLayer(writer, own("attention.head_count_kv"), lists.kv_heads));
  RL_RETURN_IF_ERROR(
      writer.SetRaw(own("attention.sliding_window_pattern"),
                    GgufValue{GgufType::kArray, GgufType::kBool, lists.sliding.size(),
                              std::as_bytes(std::span(lists.sliding))}));
  if (config.experts.count > 0) {
    const std::pair<std::string_view, int64_t> experts[] = {
        {"expert_count", config.experts.count},
        {"expert_used_count", config.experts.used},
        {"expert_feed_forward_length", config.experts.ffn_width}};
    for (const auto& [key, value] : experts) {
      RL_RETURN_IF_ERROR(writer.Set(own(key), static_cast<uint32_t>(value)));
    }
  }
  const std::pair<std::string_view, float> numbers[] = {
      {"attention.layer_norm_rms_epsilon", config.rms_eps},
      {"rope.freq_base", config.rope_base_global},
      {"rope.freq_base_swa", config.rope_base_sliding},
  };
  for (const auto& [key, value] : numbers) {
    RL_RETURN_IF_ERROR(writer.Set(own(key), value));
  }
  if (config.denoises()) RL_RETURN_IF_ERROR(WriteCanvas(config.canvas, writer));
  if (config.encodes()) {
    RL_RETURN_IF_ERROR(writer.Set(own("attention.causal"), false));
    RL_RETURN_IF_ERROR(writer.Set(own("pooling_type"), static_cast<uint32_t>(kPoolingMean)));
    RL_RETURN_IF_ERROR(
        writer.Set(own("embedding_length_out"), static_cast<uint32_t>(config.embedding_width)));
  }
  if (config.final_softcap == 0) return OkStatus();
  return writer.Set(own("final_logit_softcapping"), config.final_softcap);
}

}  // namespace

Status WriteMetadata(const Gemma4Config& config, std::string_view architecture,
                     const SyntheticOptions& options, GgufWriter& writer) {
  RL_RETURN_IF_ERROR(WriteHyperparameters(config, architecture, writer));
  return WriteTokenizer(kTokenizer, config.vocabulary, options, writer);
}

}  // namespace rullama
