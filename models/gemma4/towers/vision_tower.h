// The image tower of a Gemma 4 model: hyperparameters, tensors and clip bounds, as read from a file
// and checked. Of two kinds: an encoder of patches with layers (`gemma4v`), and for the unified
// model a projection of whole blocks of pixels (`gemma4uv`).
//
// Thread safety: immutable. Errors: kind kModelFile, ids model.*; gguf.key_*.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/graph/tensor_table.h"
#include "models/gemma4/towers/clip_bounds.h"

namespace rullama::gemma4 {

struct VisionConfig {
  bool unified = false;
  int64_t patch = 0;      // side of a patch, pixels
  int64_t pool = 0;       // patches on each side of the square that becomes one soft token
  int64_t width = 0;      // of the residual stream
  int64_t positions = 0;  // columns and rows that the position tables cover
  int64_t text_width = 0;
  // The encoder; all 0 for the unified model.
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t ffn_width = 0;
  bool standardize = false;  // the pooled values are shifted and scaled
  float eps = 1e-6F;         // of the RMS norms

  [[nodiscard]] int64_t head_dim() const { return width / heads; }
  [[nodiscard]] int64_t patch_values() const { return 3 * patch * patch; }
  [[nodiscard]] int64_t patches_per_token() const { return pool * pool; }
  // The unified model takes the whole square of a soft token as one patch.
  void MergePatches() { patch *= std::exchange(pool, 1); }
};

// Patches on each side of the square of a soft token, if a file does not say.
inline constexpr int64_t kDefaultPool = 3;

struct VisionTower {
  VisionConfig config;
  ModelWeights weights;
  ClipTable bounds;
};

// The image tower of a file for a text model of this width, or nothing if the file has none.
// Errors: those of FindTower and CheckProjection; model.hparam, model.missing_tensor,
// model.tensor_shape, model.tensor_dtype, model.clip_bounds.
Result<std::optional<VisionTower>> ReadVisionTower(const GgufFile& file, int64_t text_width);

// Whether the numbers of an encoder go together. Error model.hparam.
Status CheckEncoder(const VisionConfig& config);

// Every tensor of such a tower.
std::vector<TensorSpec> ExpectedTensors(const VisionConfig& config);

// The linear layers of the blocks, which may be clipped, in the order of v.clamp_data.
std::vector<std::string> BlockLinears(const VisionConfig& config);

}  // namespace rullama::gemma4
