// Implements the interface of all families for Gemma 3.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/graph/tensor_table.h"
#include "models/common/model.h"
#include "models/gemma3/chat/template.h"
#include "models/gemma3/graph/config.h"
#include "models/gemma3/graph/head_norms.h"

namespace rullama {

class Gemma3Model final : public Model {
 public:
  // Errors: those of Gemma3Config::FromFile and ReadGemma3Weights.
  static Result<std::unique_ptr<Gemma3Model>> FromFile(const GgufFile& file);

  Gemma3Model(Gemma3Config config, ModelWeights weights, gemma3::ChatForm form,
              std::vector<std::string> warnings);

  [[nodiscard]] std::string ChatWarning() const override;
  [[nodiscard]] Status CheckAgainst(const ArchitectureConfig& architecture) const override;
  [[nodiscard]] Result<ModelGraph> BuildGraph(const BuildOptions& options) const override;
  // There is no canvas to condition: error model.canvas.
  [[nodiscard]] Result<Graph> BuildConditioning() const override;
  [[nodiscard]] uint64_t CacheBytes(const BuildOptions& options) const override;
  [[nodiscard]] Result<Towers> ReadTowers(const GgufFile& file) const override;
  [[nodiscard]] Result<Adapter> ReadAdapter(const std::string& path) const override;
  [[nodiscard]] std::vector<AdaptableWeight> AdaptableWeights() const override;
  [[nodiscard]] Status WriteAdapter(const Adapter& adapter, const AdapterFileOptions& options,
                                    const std::string& folder) const override;
  // `thinking` has no effect here and below: the family has no thoughts.
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
  [[nodiscard]] std::optional<MediaMarkers> MarkersOf(MediaKind kind) const override;
  [[nodiscard]] PromptBorders BordersOf(const Tokenizer& tokenizer,
                                        std::span<const TokenId> ids) const override;
  [[nodiscard]] std::unique_ptr<OutputParser> MakeOutputParser(
      const OutputParserOptions& options) const override;
  [[nodiscard]] std::span<const std::string_view> AnswerMarkers() const override;
  [[nodiscard]] Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form) const override;

 private:
  [[nodiscard]] bool calls_functions() const { return form_ == gemma3::ChatForm::kFunctions; }

  Gemma3Config config_;
  ModelWeights weights_;
  std::vector<HeadNorms> balanced_;  // ReadBalancedNorms(); none without a file
  gemma3::ChatForm form_;
};

}  // namespace rullama
