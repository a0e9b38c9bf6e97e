#include "models/gemma3/gemma3_model.h"

#include <algorithm>
#include <utility>

#include "models/common/adapters/adapter.h"
#include "models/common/adapters/adapter_writer.h"
#include "models/common/chat/encoding.h"
#include "models/common/plain_output_parser.h"
#include "models/gemma3/chat/answer_grammar.h"
#include "models/gemma3/chat/function_markers.h"
#include "models/gemma3/chat/function_parser.h"
#include "models/gemma3/graph/model.h"
#include "models/gemma3/graph/weights.h"
#include "models/gemma3/towers/towers.h"

namespace rullama {
namespace {

ModelFacts FactsOf(const Gemma3Config& config, const ModelWeights& weights) {
  return {.layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .vocabulary = config.vocabulary,
          .context_length = config.context_length,
          .sliding_window = config.sliding_window,
          .media = {.taken = config.takes_media(), .whole_pictures = true},
          .weight_scales = weights.scales()};
}

// Whether the vocabulary of a file has a token.
Result<bool> HasToken(const GgufFile& file, std::string_view token) {
  RL_ASSIGN_OR_RETURN(const auto tokens, file.FindStrings("tokenizer.ggml.tokens"));
  return tokens && std::find(tokens->begin(), tokens->end(), token) != tokens->end();
}

// What a chat template names tells the members of the family apart; without a template, the
// markers of a vocabulary. Files of instruction-tuned models have a template, or say that they are
// ones.
Result<gemma3::ChatForm> FormOf(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const auto text, file.FindString("tokenizer.chat_template"));
  if (text) {
    if (text->find(gemma3::kDeclarationBegin) != text->npos) return gemma3::ChatForm::kFunctions;
    if (text->find("source_lang_code") != text->npos) return gemma3::ChatForm::kTranslation;
    return gemma3::ChatForm::kTurns;
  }
  RL_ASSIGN_OR_RETURN(const bool calls, HasToken(file, gemma3::kDeclarationBegin));
  if (calls) return gemma3::ChatForm::kFunctions;
  RL_ASSIGN_OR_RETURN(const auto finetune, file.FindString("general.finetune"));
  return finetune.value_or("") == "it" ? gemma3::ChatForm::kTurns : gemma3::ChatForm::kContinuation;
}

}  // namespace

Gemma3Model::Gemma3Model(Gemma3Config config, ModelWeights weights, gemma3::ChatForm form,
                         std::vector<std::string> warnings)
    : Model(FactsOf(config, weights), std::move(warnings)),
      config_(std::move(config)),
      weights_(std::move(weights)),
      form_(form) {}

Result<std::unique_ptr<Gemma3Model>> Gemma3Model::FromFile(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(Gemma3Config config, Gemma3Config::FromFile(file));
  RL_ASSIGN_OR_RETURN(ModelWeights weights, ReadGemma3Weights(config, file));
  RL_ASSIGN_OR_RETURN(const gemma3::ChatForm form, FormOf(file));
  std::vector<std::string> warnings = weights.warnings();
  RL_ASSIGN_OR_RETURN(auto balanced, ReadBalancedNorms(config, weights, file));
  auto model = std::make_unique<Gemma3Model>(std::move(config), std::move(weights), form,
                                             std::move(warnings));
  model->balanced_ = std::move(balanced);
  return model;
}

std::string Gemma3Model::ChatWarning() const {
  if (form_ != gemma3::ChatForm::kContinuation) return {};
  return "this is a base model, without a chat template: it continues text instead of answering";
}

Status Gemma3Model::CheckAgainst(const ArchitectureConfig& architecture) const {
  return config_.CheckAgainst(architecture);
}

Result<ModelGraph> Gemma3Model::BuildGraph(const BuildOptions& options) const {
  return BuildModel(config_, weights_, options, balanced_);
}

Result<Graph> Gemma3Model::BuildConditioning() const {
  return MakeError(ErrorKind::kUsage, "model.canvas",
                   "a canvas was asked for, but Gemma 3 predicts the next token");
}

uint64_t Gemma3Model::CacheBytes(const BuildOptions& options) const {
  return rullama::CacheBytes(config_, options);
}

Result<Towers> Gemma3Model::ReadTowers(const GgufFile& file) const {
  return gemma3::ReadTowers(file, config_.width);
}

Result<Adapter> Gemma3Model::ReadAdapter(const std::string& path) const {
  return rullama::ReadAdapter(path, {std::string(kGemma3Architecture), ExpectedTensors(config_)});
}

std::vector<AdaptableWeight> Gemma3Model::AdaptableWeights() const {
  return rullama::AdaptableWeights(ExpectedTensors(config_));
}

Status Gemma3Model::WriteAdapter(const Adapter& adapter, const AdapterFileOptions& options,
                                 const std::string& folder) const {
  RL_RETURN_IF_ERROR(WritePeftAdapter(adapter, options, folder));
  return WriteGgufAdapter(adapter, std::string(kGemma3Architecture), folder + "/adapter.gguf");
}

Result<EncodedExample> Gemma3Model::EncodeExample(const Tokenizer& tokenizer,
                                                  const nlohmann::json& messages,
                                                  const nlohmann::json& tools, TrainedTurns turns,
                                                  bool /*thinking*/) const {
  RL_ASSIGN_OR_RETURN(
      const chat::ChatPrompt prompt,
      gemma3::Render(messages, tools,
                     {.form = form_, .add_generation_prompt = false, .trained = turns}));
  return chat::EncodeExample(tokenizer, gemma3::kTurnMarkers, prompt);
}

Result<EncodedChat> Gemma3Model::EncodeChat(const Tokenizer& tokenizer,
                                            const nlohmann::json& messages,
                                            const nlohmann::json& tools,
                                            const EncodeChatOptions& options) const {
  RL_ASSIGN_OR_RETURN(const chat::ChatPrompt prompt,
                      gemma3::Render(messages, tools,
                                     {.form = form_,
                                      .add_generation_prompt = options.add_generation_prompt,
                                      .continue_last = options.continue_last}));
  RL_ASSIGN_OR_RETURN(std::vector<TokenId> ids, chat::EncodePrompt(tokenizer, gemma3::kTurnMarkers,
                                                                   prompt, options.max_tokens));
  return EncodedChat{.ids = std::move(ids)};
}

std::string Gemma3Model::JinjaTemplate() const {
  return form_ == gemma3::ChatForm::kTurns ? gemma3::JinjaTemplate() : "";
}

std::optional<MediaMarkers> Gemma3Model::MarkersOf(MediaKind kind) const {
  if (kind != MediaKind::kPicture) return std::nullopt;
  return gemma3::kPictureMarkers;
}

PromptBorders Gemma3Model::BordersOf(const Tokenizer& tokenizer,
                                     std::span<const TokenId> ids) const {
  return chat::BordersOf(tokenizer, gemma3::kTurnMarkers, ids);
}

std::unique_ptr<OutputParser> Gemma3Model::MakeOutputParser(
    const OutputParserOptions& /*options*/) const {
  if (calls_functions()) return std::make_unique<gemma3::FunctionParser>();
  return std::make_unique<chat::PlainOutputParser>();
}

std::span<const std::string_view> Gemma3Model::AnswerMarkers() const {
  if (!calls_functions()) return {};
  return gemma3::FunctionMarkers();
}

Result<AnswerGrammar> Gemma3Model::MakeAnswerGrammar(const AnswerForm& form) const {
  return calls_functions() ? gemma3::MakeFunctionGrammar(form) : gemma3::MakeAnswerGrammar(form);
}

}  // namespace rullama
