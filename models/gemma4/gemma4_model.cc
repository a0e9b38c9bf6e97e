#include "models/gemma4/gemma4_model.h"

#include <utility>

#include "models/common/adapters/adapter.h"
#include "models/gemma4/chat/answer_grammar.h"
#include "models/gemma4/chat/encoding.h"
#include "models/gemma4/chat/output_parser.h"
#include "models/gemma4/drafter/assistant.h"
#include "models/gemma4/graph/model.h"
#include "models/gemma4/towers/towers.h"

namespace rullama {
namespace {

// The table of per-layer embeddings, half of an E2B.
constexpr const char* kPerLayerTable = "per_layer_token_embd";

ModelFacts FactsOf(const Gemma4Config& config, const ModelWeights& weights) {
  ModelFacts facts{
      .layers = config.layer_count(),
      .width = config.width,
      .heads = config.heads,
      .vocabulary = config.vocabulary,
      .context_length = config.context_length,
      .sliding_window = config.sliding_window,
      .canvas = config.canvas,
      .media = {.taken = config.takes_media(), .whole_pictures = config.sees_whole_pictures()},
      .thinks = true,
      .weight_scales = weights.scales()};
  if (config.ple_dim > 0) facts.host_tables.emplace_back(kPerLayerTable);
  return facts;
}

gemma4::ChatVariant VariantOf(const GgufFile& file) {
  uint64_t parameters = 0;
  for (const TensorInfo& tensor : file.tensors()) parameters += tensor.elements();
  const auto name = file.FindString("general.name");
  return gemma4::VariantForModel(name ? name->value_or(std::string_view()) : std::string_view(),
                                 parameters);
}

}  // namespace

Gemma4Model::Gemma4Model(Gemma4Config config, Gemma4Weights weights, gemma4::ChatVariant variant)
    : Model(FactsOf(config, weights), weights.warnings()),
      config_(std::move(config)),
      weights_(std::move(weights)),
      variant_(variant) {}

Result<std::unique_ptr<Gemma4Model>> Gemma4Model::FromFile(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(Gemma4Config config, Gemma4Config::FromFile(file));
  RL_ASSIGN_OR_RETURN(Gemma4Weights weights, Gemma4Weights::FromFile(config, file));
  return std::make_unique<Gemma4Model>(std::move(config), std::move(weights), VariantOf(file));
}

Status Gemma4Model::CheckAgainst(const ArchitectureConfig& architecture) const {
  return config_.CheckAgainst(architecture);
}

Result<ModelGraph> Gemma4Model::BuildGraph(const BuildOptions& options) const {
  return BuildModel(config_, weights_, options);
}

Result<Graph> Gemma4Model::BuildConditioning() const {
  return rullama::BuildConditioning(config_, weights_);
}

uint64_t Gemma4Model::CacheBytes(const BuildOptions& options) const {
  return rullama::CacheBytes(config_, options);
}

Result<Towers> Gemma4Model::ReadTowers(const GgufFile& file) const {
  return gemma4::ReadTowers(file, config_.width);
}

Result<std::unique_ptr<Assistant>> Gemma4Model::ReadAssistant(const GgufFile& file,
                                                              AssistantOrigin origin) const {
  return gemma4::ReadAssistant(file, origin, config_, weights_);
}

Result<Adapter> Gemma4Model::ReadAdapter(const std::string& path) const {
  return rullama::ReadAdapter(path,
                              {std::string(config_.architecture()), ExpectedTensors(config_)});
}

Result<EncodedChat> Gemma4Model::EncodeChat(const Tokenizer& tokenizer,
                                            const nlohmann::json& messages,
                                            const nlohmann::json& tools,
                                            const EncodeChatOptions& options) const {
  RL_RETURN_IF_ERROR(chat::CheckMarkers(tokenizer, gemma4::kTurnMarkers));
  RL_ASSIGN_OR_RETURN(const chat::ChatPrompt prompt,
                      gemma4::RenderChat(messages, tools,
                                         {.variant = variant_,
                                          .enable_thinking = options.thinking,
                                          .add_generation_prompt = options.add_generation_prompt,
                                          .continue_last = options.continue_last}));
  RL_ASSIGN_OR_RETURN(std::vector<TokenId> ids, chat::EncodePrompt(tokenizer, gemma4::kTurnMarkers,
                                                                   prompt, options.max_tokens));
  return EncodedChat{.ids = std::move(ids), .opens_thought = prompt.opens_thought};
}

std::string Gemma4Model::JinjaTemplate() const { return gemma4::JinjaTemplate(variant_); }

std::string_view Gemma4Model::TemplateDay() const { return gemma4::kTemplateDay; }

std::optional<ThoughtMarkers> Gemma4Model::MarkersOfThoughts() const {
  return ThoughtMarkers{gemma4::kChannelBegin, gemma4::kChannelEnd};
}

std::optional<MediaMarkers> Gemma4Model::MarkersOf(MediaKind kind) const {
  return gemma4::MarkersOf(kind);
}

PromptBorders Gemma4Model::BordersOf(const Tokenizer& tokenizer,
                                     std::span<const TokenId> ids) const {
  return chat::BordersOf(tokenizer, gemma4::kTurnMarkers, ids);
}

std::unique_ptr<OutputParser> Gemma4Model::MakeOutputParser(
    const OutputParserOptions& options) const {
  return std::make_unique<gemma4::OutputParser>(options);
}

std::span<const std::string_view> Gemma4Model::AnswerMarkers() const {
  return gemma4::AnswerMarkers();
}

Result<AnswerGrammar> Gemma4Model::MakeAnswerGrammar(const AnswerForm& form) const {
  return gemma4::MakeAnswerGrammar(form);
}

}  // namespace rullama
