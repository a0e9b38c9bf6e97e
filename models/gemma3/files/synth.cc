#include "models/gemma3/files/synth.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "models/common/files/made_up_tokenizer.h"
#include "models/common/files/synth_file.h"
#include "models/common/graph/hparams.h"
#include "models/gemma3/graph/weights.h"

namespace rullama {
namespace {

// The family's markers at their ids.
constexpr std::array kMarkers = {
    MadeUpTokenizer::Special{0, "<pad>", TokenType::kControl},
    MadeUpTokenizer::Special{1, "<eos>", TokenType::kControl},
    MadeUpTokenizer::Special{2, "<bos>", TokenType::kControl},
    MadeUpTokenizer::Special{3, "<unk>", TokenType::kControl},
    MadeUpTokenizer::Special{105, "<start_of_turn>", TokenType::kControl},
    MadeUpTokenizer::Special{106, "<end_of_turn>", TokenType::kControl},
};

constexpr MadeUpTokenizer kScoredTokenizer = {
    .model = "llama", .lists_merges = false, .specials = kMarkers};

Status WriteEncoderHparams(const Gemma3Config& config, GgufWriter& writer) {
  const std::pair<std::string_view, int64_t> integers[] = {{"pooling_type", kPoolingMean},
                                                           {"dense_2_feat_in", config.width},
                                                           {"dense_2_feat_out", config.dense_width},
                                                           {"dense_3_feat_in", config.dense_width},
                                                           {"dense_3_feat_out", config.width}};
  for (const auto& [key, value] : integers) {
    RL_RETURN_IF_ERROR(
        writer.Set(fmt::format("{}.{}", config.architecture(), key), static_cast<uint32_t>(value)));
  }
  return OkStatus();
}

// Under the keys of llama.cpp's converter.
Status WriteHparams(const Gemma3Config& config, GgufWriter& writer) {
  const auto own = [&config](std::string_view key) {
    return fmt::format("{}.{}", config.architecture(), key);
  };
  const std::pair<std::string_view, int64_t> integers[] = {
      {"block_count", config.layers},
      {"context_length", config.context_length},
      {"embedding_length", config.width},
      {"feed_forward_length", config.ffn_width},
      {"attention.head_count", config.heads},
      {"attention.head_count_kv", config.kv_heads},
      {"attention.key_length", config.head_dim},
      {"attention.value_length", config.head_dim},
      {"attention.sliding_window", config.sliding_window},
      {"attention.sliding_window_pattern", config.pattern},
  };
  for (const auto& [key, value] : integers) {
    RL_RETURN_IF_ERROR(writer.Set(own(key), static_cast<uint32_t>(value)));
  }
  const std::pair<std::string_view, float> numbers[] = {
      {"attention.layer_norm_rms_epsilon", config.rms_eps},
      {"rope.freq_base", config.rope_base_global},
      {"rope.freq_base_swa", config.rope_base_sliding},
  };
  for (const auto& [key, value] : numbers) RL_RETURN_IF_ERROR(writer.Set(own(key), value));
  if (config.encodes) RL_RETURN_IF_ERROR(WriteEncoderHparams(config, writer));
  if (config.rope_scaling_global == 1) return OkStatus();
  RL_RETURN_IF_ERROR(writer.Set(own("rope.scaling.type"), "linear"));
  return writer.Set(own("rope.scaling.factor"), config.rope_scaling_global);
}

}  // namespace

Status WriteSynthetic(const Gemma3Config& config, const SyntheticOptions& options,
                      const std::filesystem::path& path) {
  SyntheticFile file{.architecture = config.architecture(),
                     .file_type = options.mix.file_type,
                     .tensors = ExpectedTensors(config),
                     .write_metadata = [&](GgufWriter& writer) -> Status {
                       RL_RETURN_IF_ERROR(WriteHparams(config, writer));
                       return WriteTokenizer(kScoredTokenizer, config.vocabulary, options, writer);
                     }};
  // Published files tie the head to the embedding.
  std::erase_if(file.tensors,
                [](const TensorSpec& spec) { return spec.presence == Presence::kOptional; });
  file.dtypes = SyntheticTypes(options.mix, file.tensors, config.layers, 0);
  return WriteSyntheticFile(file, options, path);
}

}  // namespace rullama
