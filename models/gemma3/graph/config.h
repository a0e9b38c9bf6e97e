// The hyperparameters of one Gemma 3 text model: plain data that has passed every range check, so
// that code downstream may multiply and index without checking again.
//
// It comes from a model file (metadata of llama.cpp's and of Ollama's converter alike) or from the
// `architecture` block of a configuration (`rullama synth`).
//
// Thread safety: value types, no shared state. Errors of files have kind kModelFile and ids
// model.*; errors of configurations kind kUsage.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/gguf/gguf.h"
#include "models/common/graph/layer_kind.h"

namespace rullama {

// The value of general.architecture.
inline constexpr std::string_view kGemma3Architecture = "gemma3";
// That of EmbeddingGemma; Ollama's library has it as gemma3, with dense layers (IsEmbeddingGemma).
inline constexpr std::string_view kEmbeddingGemmaArchitecture = "gemma-embedding";

// The linear scaling of the published model of this context length: 8 for 4B and larger. Files of
// Ollama leave it out.
[[nodiscard]] float PublishedRopeScaling(int64_t context_length);

struct Gemma3Config {
  int64_t layers = 0;
  int64_t width = 0;  // of the residual stream
  int64_t vocabulary = 0;
  int64_t context_length = 0;  // the longest the model was trained for, tokens
  int64_t heads = 0;           // query heads of each layer
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_width = 0;
  int64_t sliding_window = 0;  // keys a sliding layer sees, its own included
  int64_t pattern = 6;         // every layer of this number is global, the others slide
  float rms_eps = 1e-6F;
  float rope_base_sliding = 1e4F;
  float rope_base_global = 1e6F;
  // Positions of global layers are divided by this (linear scaling): PublishedRopeScaling().
  float rope_scaling_global = 1;
  std::vector<int32_t> suppress_tokens;  // never generated; distinct, ascending
  // EmbeddingGemma: rows see each other, on sliding layers within half a window to each side, and
  // the mean of all rows is the result.
  bool encodes = false;
  // Width between the two layers that follow the mean; 0: the file was written without them.
  int64_t dense_width = 0;

  // Whether pictures take the places of rows. Their own rows see each other on all layers.
  [[nodiscard]] bool takes_media() const { return !encodes; }
  // The value of general.architecture.
  [[nodiscard]] std::string_view architecture() const {
    return encodes ? kEmbeddingGemmaArchitecture : kGemma3Architecture;
  }
  // Rows that a row of an encoder's sliding layer sees to each side.
  [[nodiscard]] int64_t radius() const { return sliding_window / 2; }
  [[nodiscard]] LayerKind kind(int64_t layer) const {
    return (layer + 1) % pattern == 0 ? LayerKind::kGlobal : LayerKind::kSliding;
  }
  // The factor of the scores: 1/sqrt(head_dim), but for 27B 1/sqrt(width/heads).
  [[nodiscard]] float attention_scale() const;

  // Errors: model.hparam (a number out of its range), model.array_length, model.vocabulary, and
  // gguf.key_* for missing or mistyped metadata.
  static Result<Gemma3Config> FromFile(const GgufFile& file);

  // Values that `architecture` lacks get Gemma 3's published value. Errors: config.missing_key,
  // config.conflict and model.architecture (a value that FromFile would refuse, or a part that the
  // family does not have), all kUsage.
  static Result<Gemma3Config> FromArchitecture(const ArchitectureConfig& architecture);

  // Whether this model has the shapes that the configuration expects; what the configuration leaves
  // open is not compared. Error model.architecture_mismatch (kUsage) lists every difference.
  [[nodiscard]] Status CheckAgainst(const ArchitectureConfig& architecture) const;

  friend bool operator==(const Gemma3Config&, const Gemma3Config&) = default;
};

// Whether a file holds EmbeddingGemma: by its architecture, or by dense layers, by which alone
// Ollama's file differs from a chat model's.
[[nodiscard]] bool IsEmbeddingGemma(const GgufFile& file);

// Every range and consistency rule, whatever the config was made from. Errors model.*.
Status ValidateConfig(const Gemma3Config& config);

}  // namespace rullama
