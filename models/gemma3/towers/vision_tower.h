// The image tower of a Gemma 3 model (SigLIP): hyperparameters and tensors, as read from a file and
// checked. All pictures have one size and give the same number of soft tokens.
//
// Thread safety: immutable. Errors: kind kModelFile, ids model.*; gguf.key_*.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/graph/tensor_table.h"

namespace rullama::gemma3 {

// The kind of network, as files name it.
inline constexpr std::string_view kVisionProjectorType = "gemma3";
// Patches on each side of the square of a soft token, if a file does not say.
inline constexpr int64_t kDefaultPool = 4;

struct VisionConfig {
  int64_t side = 0;   // of a picture, pixels
  int64_t patch = 0;  // side of a patch, pixels
  int64_t pool = kDefaultPool;
  int64_t width = 0;  // of the residual stream
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t ffn_width = 0;
  int64_t text_width = 0;
  float eps = 1e-6F;  // of all norms

  [[nodiscard]] int64_t head_dim() const { return width / heads; }
  [[nodiscard]] int64_t patch_values() const { return 3 * patch * patch; }
  [[nodiscard]] int64_t patches_per_token() const { return pool * pool; }
  [[nodiscard]] int64_t patches_in_line() const { return side / patch; }
  [[nodiscard]] int64_t patches() const { return patches_in_line() * patches_in_line(); }
  [[nodiscard]] int64_t tokens() const { return patches() / patches_per_token(); }
};

struct VisionTower {
  VisionConfig config;
  ModelWeights weights;
};

// The image tower of a file for a text model of this width, or nothing if the file has none.
// Errors: those of FindInProjectorFile and CheckProjection; model.hparam, model.missing_tensor,
// model.tensor_shape, model.tensor_dtype.
Result<std::optional<VisionTower>> ReadVisionTower(const GgufFile& file, int64_t text_width);

// The width of the text model for which a file's tower was made; nothing without a projector. Error
// model.tensor_shape.
Result<std::optional<int64_t>> TextWidthOf(const GgufFile& file);

// Whether the numbers of a tower go together. Error model.hparam.
Status CheckVision(const VisionConfig& config);

// Every tensor of such a tower, under the names of llama.cpp.
std::vector<TensorSpec> ExpectedTensors(const VisionConfig& config);

}  // namespace rullama::gemma3
