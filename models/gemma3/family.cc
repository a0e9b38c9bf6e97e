#include "models/gemma3/family.h"

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/common/files/random_tensors.h"
#include "models/common/graph/hparams.h"
#include "models/gemma3/embedding_gemma.h"
#include "models/gemma3/files/random_model.h"
#include "models/gemma3/files/synth.h"
#include "models/gemma3/files/synth_towers.h"
#include "models/gemma3/gemma3_model.h"
#include "models/gemma3/towers/towers.h"

namespace rullama {
namespace {

constexpr std::array<std::string_view, 2> kArchitectures = {kGemma3Architecture,
                                                            kEmbeddingGemmaArchitecture};
constexpr std::array<UnsupportedArchitecture, 1> kUnsupported = {
    {{"gemma3n", "a model with per-layer embeddings and alternating updates"}}};

Result<std::unique_ptr<Model>> OpenGemma3(const GgufFile& file) {
  if (IsEmbeddingGemma(file)) {
    RL_ASSIGN_OR_RETURN(auto encoder, EmbeddingGemma::FromFile(file));
    return encoder;
  }
  RL_ASSIGN_OR_RETURN(auto model, Gemma3Model::FromFile(file));
  return model;
}

// Ollama's converter names the bases of both kinds of layers, and puts the tower into the same
// file.
std::string_view DialectOf(const GgufFile& file) {
  if (file.Has(HparamKey(file, "vision.block_count"))) return "ollama";
  if (file.Has(HparamKey(file, "rope.local.freq_base"))) return "ollama";
  return file.Has(HparamKey(file, "rope.freq_base")) ? "llama.cpp" : "unknown";
}

Status WriteSyntheticGemma3(const ArchitectureConfig& architecture, const SyntheticOptions& options,
                            const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const Gemma3Config config, Gemma3Config::FromArchitecture(architecture));
  return WriteSynthetic(config, options, path);
}

Status WriteSyntheticGemma3Towers(const ArchitectureConfig& architecture,
                                  const SyntheticOptions& options,
                                  const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const gemma3::VisionConfig tower,
                      gemma3::VisionFromArchitecture(architecture));
  return gemma3::WriteSyntheticTowers(tower, options, path);
}

DrawnModel DrawGemma3(uint64_t seed) {
  const RandomGemma3 random = MakeRandomGemma3(seed);
  return {.description = random.Describe(),
          .model = std::make_unique<Gemma3Model>(
              random.config, random.weights, gemma3::ChatForm::kTurns, std::vector<std::string>()),
          .weights = [random](std::vector<SyntheticConstant> constants) {
            return std::make_unique<RandomTensors>(random.weights, random.seed,
                                                   std::map<std::string, std::vector<float>>(),
                                                   std::move(constants));
          }};
}

}  // namespace

const ModelFamily kGemma3Family = {.architectures = kArchitectures,
                                   .unsupported = kUnsupported,
                                   .assistants = {},
                                   .open = OpenGemma3,
                                   .read_towers = gemma3::ReadTowers,
                                   .describe_assistant = nullptr,
                                   .dialect = DialectOf,
                                   .write_synthetic = WriteSyntheticGemma3,
                                   .write_synthetic_towers = WriteSyntheticGemma3Towers,
                                   .write_synthetic_assistant = nullptr,
                                   .draw = DrawGemma3};

}  // namespace rullama
