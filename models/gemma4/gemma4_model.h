// Implements the interface of all families for Gemma 4.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/common/model.h"
#include "models/gemma4/chat/template.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

class Gemma4Model final : public Model {
 public:
  // Errors: those of Gemma4Config::FromFile and Gemma4Weights::FromFile.
  static Result<std::unique_ptr<Gemma4Model>> FromFile(const GgufFile& file);
  Gemma4Model(Gemma4Config config, Gemma4Weights weights,
              gemma4::ChatVariant variant = gemma4::ChatVariant::kSmall);

  [[nodiscard]] Status CheckAgainst(const ArchitectureConfig& architecture) const override;
  [[nodiscard]] Result<ModelGraph> BuildGraph(const BuildOptions& options) const override;
  [[nodiscard]] Result<Graph> BuildConditioning() const override;
  [[nodiscard]] uint64_t CacheBytes(const BuildOptions& options) const override;
  [[nodiscard]] Result<Towers> ReadTowers(const GgufFile& file) const override;
  [[nodiscard]] Result<std::unique_ptr<Assistant>> ReadAssistant(
      const GgufFile& file, AssistantOrigin origin) const override;
  [[nodiscard]] Result<Adapter> ReadAdapter(const std::string& path) const override;
  [[nodiscard]] std::vector<AdaptableWeight> AdaptableWeights() const override;
  [[nodiscard]] Status WriteAdapter(const Adapter& adapter, const AdapterFileOptions& options,
                                    const std::string& folder) const override;
  [[nodiscard]] Result<EncodedExample> EncodeExample(const Tokenizer& tokenizer,
                                                     const nlohmann::json& messages,
                                                     const nlohmann::json& tools,
                                                     TrainedTurns turns,
                                                     bool thinking) const override;
  [[nodiscard]] Result<EncodedChat> EncodeChat(const Tokenizer& tokenizer,
                                               const nlohmann::json& messages,
                                               const nlohmann::json& tools,
                                               const EncodeChatOptions& options) const override;
  [[nodiscard]] std::string JinjaTemplate() const override;
  [[nodiscard]] std::string_view TemplateDay() const override;
  [[nodiscard]] std::optional<ThoughtMarkers> MarkersOfThoughts() const override;
  [[nodiscard]] std::optional<MediaMarkers> MarkersOf(MediaKind kind) const override;
  [[nodiscard]] PromptBorders BordersOf(const Tokenizer& tokenizer,
                                        std::span<const TokenId> ids) const override;
  [[nodiscard]] std::unique_ptr<OutputParser> MakeOutputParser(
      const OutputParserOptions& options) const override;
  [[nodiscard]] std::span<const std::string_view> AnswerMarkers() const override;
  [[nodiscard]] Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form) const override;

 private:
  Gemma4Config config_;
  Gemma4Weights weights_;
  gemma4::ChatVariant variant_;
};

}  // namespace rullama
