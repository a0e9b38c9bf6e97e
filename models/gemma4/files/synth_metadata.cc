#include "models/gemma4/files/synth_metadata.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace rullama {
namespace {

// Token types of GGUF.
constexpr int32_t kNormal = 1;
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kByte = 6;

constexpr size_t kFirstByteToken = 238;
constexpr size_t kSmallestVocabulary = 1024;

struct Special {
  size_t id;
  std::string_view text;
  int32_t type;
};

// The family's markers at their ids; those beyond a small vocabulary are left out.
constexpr std::array kSpecials = {
    Special{0, "<pad>", kControl},
    Special{1, "<eos>", kControl},
    Special{2, "<bos>", kControl},
    Special{3, "<unk>", kUnknown},
    Special{46, "<|tool>", kControl},
    Special{47, "<tool|>", kControl},
    Special{48, "<|tool_call>", kUserDefined},
    Special{49, "<tool_call|>", kUserDefined},
    Special{50, "<|tool_response>", kUserDefined},
    Special{51, "<tool_response|>", kUserDefined},
    Special{52, "<|\"|>", kUserDefined},
    Special{98, "<|think|>", kControl},
    Special{100, "<|channel>", kUserDefined},
    Special{101, "<channel|>", kUserDefined},
    Special{105, "<|turn>", kControl},
    Special{106, "<turn|>", kControl},
};

// Markers, newlines, byte tokens, printable characters, one word, then fillers.
struct MadeUpVocabulary {
  explicit MadeUpVocabulary(size_t size) : types(size, kNormal), scores(size, -1000.0f) {
    for (size_t id = 0; id < size; ++id) tokens.push_back(fmt::format("\xE2\x96\x81w{}", id));
    for (const Special& special : kSpecials) Put(special.id, special.text, special.type);
    Put(107, "\n", kNormal);
    for (size_t byte = 0; byte < 256; ++byte) {
      Put(kFirstByteToken + byte, fmt::format("<0x{:02X}>", byte), kByte);
    }
    size_t next = kFirstByteToken + 256;
    for (char c = '!'; c <= '~'; ++c) Put(next++, std::string(1, c), kNormal);
    Put(next++, "\xE2\x96\x81", kNormal);
    Put(next++, "th", kNormal);
    Put(next++, "the", kNormal);
  }
  void Put(size_t id, std::string_view text, int32_t type) {
    tokens[id] = text;
    types[id] = type;
  }

  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges = {"t h", "th e"};
};

Status WriteMadeUpTokenizer(int64_t size, GgufWriter& writer) {
  if (size < static_cast<int64_t>(kSmallestVocabulary)) {
    return MakeError(
        ErrorKind::kUsage, "synth.vocabulary",
        "architecture.vocabulary is {}, a made-up vocabulary needs {} tokens; give one "
        "with --vocab",
        size, kSmallestVocabulary);
  }
  const MadeUpVocabulary vocabulary(static_cast<size_t>(size));
  RL_RETURN_IF_ERROR(writer.Set("tokenizer.ggml.model", "gemma4"));
  RL_RETURN_IF_ERROR(writer.SetStrings("tokenizer.ggml.tokens", vocabulary.tokens));
  RL_RETURN_IF_ERROR(
      writer.SetArray("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores)));
  RL_RETURN_IF_ERROR(
      writer.SetArray("tokenizer.ggml.token_type", std::span<const int32_t>(vocabulary.types)));
  RL_RETURN_IF_ERROR(writer.SetStrings("tokenizer.ggml.merges", vocabulary.merges));
  constexpr std::pair<std::string_view, uint32_t> kIds[] = {
      {"bos", 2}, {"eos", 1}, {"unknown", 3}, {"padding", 0}};
  for (const auto& [name, id] : kIds) {
    RL_RETURN_IF_ERROR(writer.Set(fmt::format("tokenizer.ggml.{}_token_id", name), id));
  }
  RL_RETURN_IF_ERROR(writer.Set("tokenizer.ggml.add_bos_token", true));
  return writer.Set("tokenizer.ggml.add_space_prefix", false);
}

Status CopyTokenizer(const GgufFile& vocabulary, int64_t size, GgufWriter& writer) {
  const GgufValue* tokens = vocabulary.Find("tokenizer.ggml.tokens");
  const uint64_t found = tokens == nullptr ? 0 : tokens->count;
  if (found != static_cast<uint64_t>(size)) {
    return MakeError(ErrorKind::kUsage, "synth.vocabulary",
                     "'{}' has {} tokens, the architecture {}", vocabulary.path(), found, size);
  }
  for (const GgufEntry& entry : vocabulary.metadata()) {
    if (entry.key.starts_with("tokenizer.")) {
      RL_RETURN_IF_ERROR(writer.SetRaw(entry.key, entry.value));
    }
  }
  return OkStatus();
}

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

Status WriteHyperparameters(const Gemma4Config& config, GgufWriter& writer) {
  const auto own = [&config](std::string_view key) {
    return fmt::format("{}.{}", config.architecture(), key);
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
  if (config.final_softcap == 0) return OkStatus();
  return writer.Set(own("final_logit_softcapping"), config.final_softcap);
}

}  // namespace

Status WriteMetadata(const Gemma4Config& config, const SyntheticOptions& options,
                     GgufWriter& writer) {
  RL_RETURN_IF_ERROR(writer.Set("general.architecture", config.architecture()));
  RL_RETURN_IF_ERROR(writer.Set("general.type", "model"));
  RL_RETURN_IF_ERROR(writer.Set("general.name", options.name));
  RL_RETURN_IF_ERROR(writer.Set("general.file_type", options.mix.file_type));
  RL_RETURN_IF_ERROR(writer.Set("general.quantization_version", uint32_t{2}));
  RL_RETURN_IF_ERROR(WriteHyperparameters(config, writer));
  if (options.vocabulary != nullptr) {
    return CopyTokenizer(*options.vocabulary, config.vocabulary, writer);
  }
  return WriteMadeUpTokenizer(config.vocabulary, writer);
}

}  // namespace rullama
