// The hyperparameters of one Gemma 4 text model: plain data that has passed every range check, so
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
#include "models/common/facts.h"
#include "models/common/graph/layer_kind.h"

namespace rullama {

// Values of general.architecture.
inline constexpr std::string_view kGemma4Architecture = "gemma4";
inline constexpr std::string_view kDiffusionGemmaArchitecture = "diffusion-gemma";
inline constexpr std::string_view kEmbeddingGemma2Architecture = "gemma-embedding2";

struct Gemma4Layer {
  LayerKind kind = LayerKind::kSliding;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_width = 0;
  // The layer whose K/V cache this one reads: itself, or an earlier donor of the same kind.
  int64_t cache_layer = 0;
  // There is no V projection: V is the K projection before its norm and rotation.
  bool k_eq_v = false;

  friend bool operator==(const Gemma4Layer&, const Gemma4Layer&) = default;
};

// The mixture of experts of a layer, in addition to its dense feed-forward; the same on all layers.
struct Gemma4Experts {
  int64_t count = 0;      // 0: the model has none
  int64_t used = 0;       // of them by each token
  int64_t ffn_width = 0;  // of each
  // Gate and up projection are one tensor, gate first; else two.
  bool fused_gate_up = true;

  friend bool operator==(const Gemma4Experts&, const Gemma4Experts&) = default;
};

struct Gemma4Config {
  int64_t width = 0;  // of the residual stream
  int64_t vocabulary = 0;
  int64_t context_length = 0;  // the longest the model was trained for, tokens
  int64_t heads = 0;           // query heads of each layer
  int64_t sliding_window = 0;  // keys a sliding layer sees, its own included
  int64_t ple_dim = 0;         // width of per-layer embeddings, 0 = the model has none
  float rms_eps = 1e-6F;
  float final_softcap = 0;  // 0 = none
  float rope_base_sliding = 1e4F;
  float rope_base_global = 1e6F;
  int64_t n_rot_sliding = 0;  // dims of a head that rotary embedding covers
  int64_t n_rot_global = 0;
  // Divisors of the rotation frequencies of global layers, n_rot_global / 2 of them; a very large
  // one keeps its pair from rotating.
  std::vector<float> rope_factors;
  bool rope_factors_in_file = false;  // as tensor rope_freqs.weight
  std::vector<Gemma4Layer> layers;
  Gemma4Experts experts;
  CanvasFacts canvas;                    // DiffusionGemma
  std::vector<int32_t> suppress_tokens;  // never generated; distinct, ascending
  // EmbeddingGemma 2: numbers of a text's vector, which are a projection of the mean of its rows.
  // Rows see each other, on sliding layers within half a window to each side; per-layer inputs have
  // no table, and all dims of a head rotate. 0: the model writes text.
  int64_t embedding_width = 0;

  [[nodiscard]] int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
  [[nodiscard]] const Gemma4Layer& layer(int64_t index) const {
    return layers[static_cast<size_t>(index)];
  }
  // Whether it denoises canvases (DiffusionGemma) instead of predicting the next token.
  [[nodiscard]] bool denoises() const { return canvas.length > 0; }
  // Whether the model takes pictures and sounds as soft tokens, given a file with its towers.
  [[nodiscard]] bool takes_media() const { return !denoises(); }
  // Whether it makes vectors of texts (EmbeddingGemma 2).
  [[nodiscard]] bool encodes() const { return embedding_width > 0; }
  // Rows that a row of an encoder's sliding layer sees to each side.
  [[nodiscard]] int64_t radius() const { return sliding_window / 2; }
  // Whether the rows of a picture see each other on sliding layers. No file says so: models with
  // per-layer embeddings were trained without.
  [[nodiscard]] bool sees_whole_pictures() const { return ple_dim == 0 && !encodes(); }
  // The value of general.architecture.
  [[nodiscard]] std::string_view architecture() const {
    if (encodes()) return kEmbeddingGemma2Architecture;
    return denoises() ? kDiffusionGemmaArchitecture : kGemma4Architecture;
  }
  [[nodiscard]] bool OwnsCache(int64_t index) const { return layer(index).cache_layer == index; }
  // The first of the trailing layers without a cache of their own; layer_count() if there is none.
  [[nodiscard]] int64_t first_shared_layer() const;
  [[nodiscard]] int64_t n_rot(LayerKind kind) const {
    return kind == LayerKind::kSliding ? n_rot_sliding : n_rot_global;
  }

  // `file` is of one of the three architectures. Errors: model.hparam (a number out of its range),
  // model.array_length, model.kv_donor, model.moe, model.vocabulary, and gguf.key_* for missing or
  // mistyped metadata.
  static Result<Gemma4Config> FromFile(const GgufFile& file);

  // Values that `architecture` lacks get Gemma 4's published value. Errors: config.missing_key,
  // config.conflict and model.architecture (a value that FromFile would refuse), all kUsage.
  static Result<Gemma4Config> FromArchitecture(const ArchitectureConfig& architecture);

  // Whether this model has the shapes that the configuration expects; what the configuration leaves
  // open is not compared. Error model.architecture_mismatch (kUsage) lists every difference.
  [[nodiscard]] Status CheckAgainst(const ArchitectureConfig& architecture) const;

  friend bool operator==(const Gemma4Config&, const Gemma4Config&) = default;
};

// Queries and keys are normalised per head, which takes the place of 1/sqrt(head_dim).
inline constexpr float kGemma4AttentionScale = 1.0F;

// Part of a global head's pairs that rotates, in every published model of the family.
inline constexpr double kGemma4RotaryFraction = 0.25;

// The number of values of `rope_factors` that let their pair rotate noticeably.
[[nodiscard]] int64_t CountRotatingPairs(const std::vector<float>& rope_factors);

// Factors that let the first `fraction` of `pairs` rotate and hold the others still.
[[nodiscard]] std::vector<float> MakeRopeFactors(int64_t pairs, double fraction);

// Points each of the last `shared_kv_layers` layers to its donor: the last layer of the same kind
// that owns a cache. The other layers own theirs. Error model.kv_donor.
Status AssignDonors(std::vector<Gemma4Layer>& layers, int64_t shared_kv_layers);

// Every range and consistency rule, whatever the config was made from. Errors model.*.
Status ValidateConfig(const Gemma4Config& config);

}  // namespace rullama
