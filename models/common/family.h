// A family of models: one row of the registry (models/registry.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/gguf/gguf.h"
#include "core/runtime/weights.h"
#include "models/common/model.h"
#include "models/quantize/quant_mix.h"

namespace rullama {

// Settings of a file of random weights.
struct SyntheticOptions {
  QuantMix mix = {};
  uint64_t seed = 0;
  std::string name = {};                 // general.name
  const GgufFile* vocabulary = nullptr;  // tokenizer metadata is copied from here; null: made up
  int threads = 1;
  std::vector<std::filesystem::path> read = {};  // files that the output must not replace
  std::shared_ptr<const std::atomic<bool>> cancel = nullptr;            // null: never
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};  // bytes
};

// A tiny model of shapes and weights that depend on a seed alone, without a file.
struct DrawnModel {
  std::string description;  // one line
  std::unique_ptr<const Model> model;
  // The weights of a graph of the model that has these constants.
  std::function<std::unique_ptr<WeightSource>(std::vector<SyntheticConstant> constants)> weights;
};

// An architecture of the family that this version does not run.
struct UnsupportedArchitecture {
  std::string_view name;
  std::string_view what;  // "a model with alternating updates"
};

struct ModelFamily {
  std::span<const std::string_view> architectures;  // values of general.architecture, at least one
  std::span<const UnsupportedArchitecture> unsupported;
  std::span<const std::string_view> assistants;  // values of general.architecture

  // Checks hyperparameters and tensors of a file of one of `architectures`; the model holds no
  // reference to it. Errors (kModelFile): model.*, gguf.key_*.
  Result<std::unique_ptr<Model>> (*open)(const GgufFile& file);
  // The towers of a file, for whatever text model they were made for; none if it has none. Null:
  // the family has no towers. Errors: those of Model::ReadTowers.
  Result<Towers> (*read_towers)(const GgufFile& file);
  // Describes a file of one of `assistants`, whatever model it was made for. Null: the family has
  // none. Errors: those of Model::ReadAssistant about the file.
  Result<AssistantFacts> (*describe_assistant)(const GgufFile& file, AssistantOrigin origin);
  // The program whose converter wrote the file: "llama.cpp", "ollama" or "unknown".
  std::string_view (*dialect)(const GgufFile& file);
  // Writes a file of these shapes with random weights: every tensor, type and metadata key that a
  // converted and quantised file has, so that its speed and memory are those of the real thing.
  // Errors: config.missing_key, config.conflict, model.architecture (kUsage); synth.vocabulary (too
  // small, or of another size than the architecture's), io.same_file, run.cancelled; gguf.* and
  // io.* of the writer.
  Status (*write_synthetic)(const ArchitectureConfig& architecture, const SyntheticOptions& options,
                            const std::filesystem::path& path);
  // The same for a file of the architecture's towers alone. Null: the family has no towers.
  // Errors: those of write_synthetic.
  Status (*write_synthetic_towers)(const ArchitectureConfig& architecture,
                                   const SyntheticOptions& options,
                                   const std::filesystem::path& path);
  // The same for a file of the drafter that is published for models of these shapes. Null: the
  // family has none. Errors: those of write_synthetic, draft.target (kUsage).
  Status (*write_synthetic_assistant)(const ArchitectureConfig& architecture,
                                      const SyntheticOptions& options,
                                      const std::filesystem::path& path);
  DrawnModel (*draw)(uint64_t seed);
};

}  // namespace rullama
