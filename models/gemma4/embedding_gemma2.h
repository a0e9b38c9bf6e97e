// EmbeddingGemma 2: blocks of Gemma 4 as an encoder. Thread safety: as Model.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "models/common/encoder_model.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

class EmbeddingGemma2 final : public EncoderModel {
 public:
  // Errors: those of Gemma4Config::FromFile and Gemma4Weights::FromFile.
  static Result<std::unique_ptr<EmbeddingGemma2>> FromFile(const GgufFile& file);

  EmbeddingGemma2(Gemma4Config config, Gemma4Weights weights);

  [[nodiscard]] Status CheckAgainst(const ArchitectureConfig& architecture) const override;
  [[nodiscard]] Result<ModelGraph> BuildGraph(const BuildOptions& options) const override;
  [[nodiscard]] Result<ModelGraph> BuildEmbeddingHead() const override;
  [[nodiscard]] std::span<const EmbeddingPrompt> EmbeddingPrompts() const override;
  [[nodiscard]] Result<Towers> ReadTowers(const GgufFile& file) const override;
  [[nodiscard]] Result<EncodedChat> EncodeChat(const Tokenizer& tokenizer,
                                               const nlohmann::json& messages,
                                               const nlohmann::json& tools,
                                               const EncodeChatOptions& options) const override;
  [[nodiscard]] std::optional<MediaMarkers> MarkersOf(MediaKind kind) const override;

 private:
  Gemma4Config config_;
  Gemma4Weights weights_;
};

}  // namespace rullama
