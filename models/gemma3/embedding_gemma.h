// EmbeddingGemma: the network of Gemma 3 as an encoder. Thread safety: as Model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/common/encoder_model.h"
#include "models/common/graph/tensor_table.h"
#include "models/gemma3/graph/config.h"

namespace rullama {

class EmbeddingGemma final : public EncoderModel {
 public:
  // Errors: those of Gemma3Config::FromFile and ReadGemma3Weights.
  static Result<std::unique_ptr<EmbeddingGemma>> FromFile(const GgufFile& file);

  EmbeddingGemma(Gemma3Config config, ModelWeights weights, std::vector<std::string> warnings);

  [[nodiscard]] Status CheckAgainst(const ArchitectureConfig& architecture) const override;
  [[nodiscard]] Result<ModelGraph> BuildGraph(const BuildOptions& options) const override;
  [[nodiscard]] Result<ModelGraph> BuildEmbeddingHead() const override;
  [[nodiscard]] std::span<const EmbeddingPrompt> EmbeddingPrompts() const override;

 private:
  Gemma3Config config_;
  ModelWeights weights_;
};

}  // namespace rullama
