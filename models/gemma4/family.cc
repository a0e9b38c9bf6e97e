#include "models/gemma4/family.h"

#include <array>
#include <utility>

#include "models/gemma4/drafter/assistant.h"
#include "models/gemma4/drafter/drafter_file.h"
#include "models/gemma4/embedding_gemma2.h"
#include "models/gemma4/files/random_model.h"
#include "models/gemma4/files/synth.h"
#include "models/gemma4/files/synth_drafter.h"
#include "models/gemma4/files/synth_towers.h"
#include "models/gemma4/gemma4_model.h"
#include "models/gemma4/towers/towers.h"

namespace rullama {
namespace {

constexpr std::array<std::string_view, 3> kArchitectures = {
    kGemma4Architecture, kDiffusionGemmaArchitecture, kEmbeddingGemma2Architecture};

Result<std::unique_ptr<Model>> OpenGemma4(const GgufFile& file) {
  const auto architecture = file.FindString("general.architecture");
  if (architecture && *architecture == kEmbeddingGemma2Architecture) {
    RL_ASSIGN_OR_RETURN(auto encoder, EmbeddingGemma2::FromFile(file));
    return encoder;
  }
  RL_ASSIGN_OR_RETURN(auto model, Gemma4Model::FromFile(file));
  return model;
}

std::string_view DialectOf(const GgufFile& file) {
  const auto tokenizer = file.FindString("tokenizer.ggml.model");
  if (!tokenizer || !tokenizer->has_value()) return "unknown";
  if (**tokenizer == "gemma4") return "llama.cpp";
  return **tokenizer == "llama" ? "ollama" : "unknown";
}

Status WriteSyntheticGemma4(const ArchitectureConfig& architecture, const SyntheticOptions& options,
                            const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const Gemma4Config config, Gemma4Config::FromArchitecture(architecture));
  return WriteSynthetic(config, options, path);
}

Status WriteSyntheticGemma4Towers(const ArchitectureConfig& architecture,
                                  const SyntheticOptions& options,
                                  const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const gemma4::TowerShapes towers,
                      gemma4::TowersFromArchitecture(architecture));
  return gemma4::WriteSyntheticTowers(towers, options, path);
}

Status WriteSyntheticGemma4Drafter(const ArchitectureConfig& architecture,
                                   const SyntheticOptions& options,
                                   const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const Gemma4Config config, Gemma4Config::FromArchitecture(architecture));
  RL_ASSIGN_OR_RETURN(const gemma4::DrafterConfig drafter, gemma4::PublishedDrafter(config));
  return gemma4::WriteSyntheticDrafter(drafter, options, path);
}

DrawnModel DrawGemma4(uint64_t seed) {
  const RandomModel random = MakeRandomModel(seed);
  return {.description = random.Describe(),
          .model = std::make_unique<Gemma4Model>(random.config, random.weights),
          .weights = [random](std::vector<SyntheticConstant> constants) {
            return std::make_unique<RandomWeights>(random, std::move(constants));
          }};
}

}  // namespace

const ModelFamily kGemma4Family = {.architectures = kArchitectures,
                                   .unsupported = {},
                                   .assistants = gemma4::kDrafterArchitectures,
                                   .open = OpenGemma4,
                                   .read_towers = gemma4::ReadTowers,
                                   .describe_assistant = gemma4::DescribeAssistant,
                                   .dialect = DialectOf,
                                   .write_synthetic = WriteSyntheticGemma4,
                                   .write_synthetic_towers = WriteSyntheticGemma4Towers,
                                   .write_synthetic_assistant = WriteSyntheticGemma4Drafter,
                                   .draw = DrawGemma4};

}  // namespace rullama
