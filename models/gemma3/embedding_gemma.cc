#include "models/gemma3/embedding_gemma.h"

#include <utility>

#include "models/gemma3/graph/model.h"
#include "models/gemma3/graph/weights.h"

namespace rullama {
namespace {

ModelFacts EncoderFactsOf(const Gemma3Config& config, const ModelWeights& weights) {
  return {.layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .vocabulary = config.vocabulary,
          .context_length = config.context_length,
          .sliding_window = config.sliding_window,
          .encoder = {.embedding = config.width,
                      .radius = config.radius(),
                      .end = std::string(kEmbeddingGemmaEnd),
                      .has_head = config.dense_width > 0},
          .weight_scales = weights.scales()};
}

}  // namespace

EmbeddingGemma::EmbeddingGemma(Gemma3Config config, ModelWeights weights,
                               std::vector<std::string> warnings)
    : EncoderModel(EncoderFactsOf(config, weights), std::move(warnings)),
      config_(std::move(config)),
      weights_(std::move(weights)) {}

Result<std::unique_ptr<EmbeddingGemma>> EmbeddingGemma::FromFile(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(Gemma3Config config, Gemma3Config::FromFile(file));
  RL_ASSIGN_OR_RETURN(ModelWeights weights, ReadGemma3Weights(config, file));
  std::vector<std::string> warnings = weights.warnings();
  if (config.dense_width == 0) {
    warnings.emplace_back(
        "the file lacks the two dense layers after the mean (llama.cpp's converter writes them "
        "with --sentence-transformers-dense-modules): its embeddings differ from those of the "
        "published model and retrieve worse");
  }
  return std::make_unique<EmbeddingGemma>(std::move(config), std::move(weights),
                                          std::move(warnings));
}

Status EmbeddingGemma::CheckAgainst(const ArchitectureConfig& architecture) const {
  return config_.CheckAgainst(architecture);
}

Result<ModelGraph> EmbeddingGemma::BuildGraph(const BuildOptions& options) const {
  return BuildModel(config_, weights_, options);
}

Result<ModelGraph> EmbeddingGemma::BuildEmbeddingHead() const {
  if (config_.dense_width == 0) return Model::BuildEmbeddingHead();
  return BuildDenseHead(config_, weights_);
}

std::span<const EmbeddingPrompt> EmbeddingGemma::EmbeddingPrompts() const {
  return EmbeddingGemmaPrompts(/*generation=*/1);
}

}  // namespace rullama
