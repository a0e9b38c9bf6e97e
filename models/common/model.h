// A model whose file was opened and checked: what the engine and the commands need of it, whatever
// its family. models/registry.h opens it.
//
// Thread safety: immutable; const member functions may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/gguf/gguf.h"
#include "models/common/adapter.h"
#include "models/common/answer_form.h"
#include "models/common/assistant.h"
#include "models/common/chat.h"
#include "models/common/facts.h"
#include "models/common/model_graph.h"
#include "models/common/towers.h"

namespace rullama {

// A text that comes before the input of an embedding model and says what the vector is for.
struct EmbeddingPrompt {
  std::string_view name;  // of the task
  std::string_view text;
};

class Model {
 public:
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  [[nodiscard]] const ModelFacts& facts() const { return facts_; }
  // Warnings for the user about the file, one sentence each.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  // A warning for those who hold a conversation with the model, one sentence; empty: none.
  [[nodiscard]] virtual std::string ChatWarning() const { return {}; }

  // The day of the published chat template that the model renders conversations with, such as
  // "2026-07-09"; empty for a model whose template has none.
  [[nodiscard]] virtual std::string_view TemplateDay() const { return {}; }

  // Whether this model has the shapes that the configuration expects; shapes that it does not name
  // are not compared. Error model.architecture_mismatch (kUsage) lists every difference.
  [[nodiscard]] virtual Status CheckAgainst(const ArchitectureConfig& architecture) const = 0;

  // One of the model's graphs. Errors (kUsage) for options out of range: model.capacity,
  // model.slots, model.rows, model.kv_dtype, model.canvas, model.media, model.encoder.
  [[nodiscard]] virtual Result<ModelGraph> BuildGraph(const BuildOptions& options) const = 0;
  // A graph that conditions the next step of a canvas pass on logits made elsewhere: inputs row,
  // logits and inverse temperature of canvas_names, no outputs. Error model.canvas.
  [[nodiscard]] virtual Result<Graph> BuildConditioning() const = 0;
  // Of an encoder with a head: the graph that makes embeddings of means (encoder_names), one for
  // each of the T rows. Error model.encoder of any other model.
  [[nodiscard]] virtual Result<ModelGraph> BuildEmbeddingHead() const {
    return MakeError(ErrorKind::kUsage, "model.encoder",
                     "this model has no layers after the mean of a text's rows");
  }
  // The prompts of an encoder by task.
  [[nodiscard]] virtual std::span<const EmbeddingPrompt> EmbeddingPrompts() const { return {}; }
  // Bytes of all K/V states of the graph that these options build.
  [[nodiscard]] virtual uint64_t CacheBytes(const BuildOptions& options) const = 0;

  // The towers for this model in a file: its own, or one that has nothing but towers. A family
  // without towers, and a file that has none, give an empty result. Errors (kModelFile):
  // model.tower for a file made for another model; model.*, gguf.key_*.
  [[nodiscard]] virtual Result<Towers> ReadTowers(const GgufFile& /*file*/) const {
    return Towers();
  }

  // The assistant for this model in a file (IsAssistant). Errors: draft.* for one that was made for
  // another model, draft.target for a model of a family without assistants (kUsage); model.*,
  // gguf.*, draft.ordering (kModelFile).
  [[nodiscard]] virtual Result<std::unique_ptr<Assistant>> ReadAssistant(
      const GgufFile& /*file*/, AssistantOrigin /*origin*/) const {
    return MakeError(ErrorKind::kUsage, "draft.target",
                     "there is no drafter for models of this family, expected a Gemma 4 model; "
                     "give a smaller model of the same family");
  }

  // Reads a low-rank adapter of this model. Errors: adapter.*, safetensors.*, gguf.*, io.*.
  [[nodiscard]] virtual Result<Adapter> ReadAdapter(const std::string& path) const = 0;

  // The weights that adapters can be trained for, layer by layer. Empty: the family cannot be
  // trained.
  [[nodiscard]] virtual std::vector<AdaptableWeight> AdaptableWeights() const { return {}; }
  // Writes an adapter into a folder, which exists: PEFT's two files, and adapter.gguf of
  // llama.cpp. Errors: adapter.write, train.model, io.*, gguf.*.
  [[nodiscard]] virtual Status WriteAdapter(const Adapter& /*adapter*/,
                                            const AdapterFileOptions& /*options*/,
                                            const std::string& /*folder*/) const {
    return NotTrainable();
  }

  // A conversation to learn from. Errors: those of EncodeChat; train.model.
  [[nodiscard]] virtual Result<EncodedExample> EncodeExample(const Tokenizer& /*tokenizer*/,
                                                             const nlohmann::json& /*messages*/,
                                                             const nlohmann::json& /*tools*/,
                                                             TrainedTurns /*turns*/,
                                                             bool /*thinking*/) const {
    return NotTrainable();
  }

  // The tokens of a conversation with the model's chat template. `messages` and `tools` (may be
  // null) have the form of the OpenAI chat API. Markers are recognised in the template's own text
  // only. Errors: chat.*, with chat.markers_missing (kModelFile) for a vocabulary without chat;
  // those of Tokenizer::Encode.
  [[nodiscard]] virtual Result<EncodedChat> EncodeChat(const Tokenizer& tokenizer,
                                                       const nlohmann::json& messages,
                                                       const nlohmann::json& tools,
                                                       const EncodeChatOptions& options) const = 0;
  // The template of conversations of texts for Jinja, of `messages` and `add_generation_prompt`
  // alone.
  [[nodiscard]] virtual std::string JinjaTemplate() const { return {}; }
  // The markers of thoughts; nothing if the family writes none.
  [[nodiscard]] virtual std::optional<ThoughtMarkers> MarkersOfThoughts() const {
    return std::nullopt;
  }
  // The markers of media of this kind; nothing if the family has none.
  [[nodiscard]] virtual std::optional<MediaMarkers> MarkersOf(MediaKind /*kind*/) const {
    return std::nullopt;
  }
  [[nodiscard]] virtual PromptBorders BordersOf(const Tokenizer& tokenizer,
                                                std::span<const TokenId> ids) const = 0;
  [[nodiscard]] virtual std::unique_ptr<OutputParser> MakeOutputParser(
      const OutputParserOptions& options) const = 0;

  // The special tokens that the grammars of answers name, in the order of their symbols.
  [[nodiscard]] virtual std::span<const std::string_view> AnswerMarkers() const = 0;
  // The grammar of the answers of a form. Errors (kUsage): schema.invalid, schema.unsupported,
  // schema.too_large, which name the place.
  [[nodiscard]] virtual Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form) const = 0;

 protected:
  Model(ModelFacts facts, std::vector<std::string> warnings)
      : facts_(std::move(facts)), warnings_(std::move(warnings)) {}

 private:
  static tl::unexpected<Error> NotTrainable() {
    return MakeError(ErrorKind::kModelFile, "train.model",
                     "models of this family cannot be trained by this version");
  }

  ModelFacts facts_;
  std::vector<std::string> warnings_;
};

}  // namespace rullama
