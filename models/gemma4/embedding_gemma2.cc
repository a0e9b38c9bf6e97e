#include "models/gemma4/embedding_gemma2.h"

#include <utility>

#include "models/common/chat/json.h"
#include "models/common/chat/prompt.h"
#include "models/common/chat/validate.h"
#include "models/gemma4/chat/encoding.h"
#include "models/gemma4/graph/model.h"
#include "models/gemma4/towers/towers.h"

namespace rullama {
namespace {

ModelFacts EncoderFactsOf(const Gemma4Config& config, const ModelWeights& weights) {
  return {.layers = config.layer_count(),
          .width = config.width,
          .heads = config.heads,
          .vocabulary = config.vocabulary,
          .context_length = config.context_length,
          .sliding_window = config.sliding_window,
          .media = {.taken = config.takes_media(), .whole_pictures = false},
          .encoder = {.embedding = config.embedding_width,
                      .radius = config.radius(),
                      .end = std::string(kEmbeddingGemmaEnd),
                      .has_head = true},
          .weight_scales = weights.scales()};
}

}  // namespace

EmbeddingGemma2::EmbeddingGemma2(Gemma4Config config, Gemma4Weights weights)
    : EncoderModel(EncoderFactsOf(config, weights), weights.warnings()),
      config_(std::move(config)),
      weights_(std::move(weights)) {}

Result<std::unique_ptr<EmbeddingGemma2>> EmbeddingGemma2::FromFile(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(Gemma4Config config, Gemma4Config::FromFile(file));
  RL_ASSIGN_OR_RETURN(Gemma4Weights weights, Gemma4Weights::FromFile(config, file));
  return std::make_unique<EmbeddingGemma2>(std::move(config), std::move(weights));
}

Status EmbeddingGemma2::CheckAgainst(const ArchitectureConfig& architecture) const {
  return config_.CheckAgainst(architecture);
}

Result<ModelGraph> EmbeddingGemma2::BuildGraph(const BuildOptions& options) const {
  return BuildModel(config_, weights_, options);
}

Result<ModelGraph> EmbeddingGemma2::BuildEmbeddingHead() const {
  return BuildProjection(config_, weights_);
}

Result<Towers> EmbeddingGemma2::ReadTowers(const GgufFile& file) const {
  return gemma4::ReadTowers(file, config_.width);
}

// The parts of one message in their order, without anything between them.
Result<EncodedChat> EmbeddingGemma2::EncodeChat(const Tokenizer& tokenizer,
                                                const nlohmann::json& messages,
                                                const nlohmann::json& /*tools*/,
                                                const EncodeChatOptions& options) const {
  RL_RETURN_IF_ERROR(chat::CheckMessages(messages));
  if (messages.size() != 1) {
    return chat::ErrorAt("messages", "chat.messages",
                         "found {}, expected one, whose parts are embedded together",
                         messages.size());
  }
  chat::PromptWriter out;
  out.Template(gemma4::kBos);
  const nlohmann::json& content = chat::Member(messages[0], "content");
  if (content.is_string()) out.User(chat::Text(content));
  for (const nlohmann::json& part : content.is_array() ? content : nlohmann::json::array()) {
    const std::string_view type = chat::Text(chat::Member(part, "type"));
    if (type == "text") out.User(chat::Text(chat::Member(part, "text")));
    if (type.starts_with("image")) out.Template(gemma4::kImage);
    if (type == "audio" || type == "input_audio") out.Template(gemma4::kAudio);
    // A video is its frames, without times.
    for (size_t i = 0; type == "video" && i < chat::Member(part, "seconds").size(); ++i) {
      out.Template(gemma4::kImage);
    }
  }
  out.Template(kEmbeddingGemmaEnd);
  RL_ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                      chat::EncodePrompt(tokenizer, gemma4::kTurnMarkers, std::move(out).Finish(),
                                         options.max_tokens));
  return EncodedChat{.ids = std::move(ids)};
}

std::optional<MediaMarkers> EmbeddingGemma2::MarkersOf(MediaKind kind) const {
  return gemma4::MarkersOf(kind);
}

std::span<const EmbeddingPrompt> EmbeddingGemma2::EmbeddingPrompts() const {
  return EmbeddingGemmaPrompts(/*generation=*/2);
}

}  // namespace rullama
