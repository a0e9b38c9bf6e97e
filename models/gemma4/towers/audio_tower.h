// The audio tower of a Gemma 4 model: hyperparameters, tensors and clip bounds, as read from a file
// and checked. Of two kinds: a conformer on log-mel features (`gemma4a`), and for the unified model
// a projection of raw samples (`gemma4ua`).
//
// Thread safety: immutable. Errors: kind kModelFile, ids model.*; gguf.key_*.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/graph/tensor_table.h"
#include "models/gemma4/towers/clip_bounds.h"

namespace rullama::gemma4 {

inline constexpr int64_t kMelBins = 128;
inline constexpr int64_t kSamplesOfToken = 640;  // of the unified model

struct AudioConfig {
  bool unified = false;
  int64_t inputs = 0;  // numbers in a row of the input: mel bins of a frame, or samples of a token
  int64_t text_width = 0;
  // The conformer; all 0 for the unified model.
  int64_t layers = 0;
  int64_t width = 0;  // of the residual stream
  int64_t heads = 0;
  int64_t ffn_width = 0;
  int64_t out_width = 0;                      // before the projector
  std::array<int64_t, 2> conv_channels = {};  // of the two convolutions that shorten the sound
  int64_t kernel = 0;                         // rows that the convolution of a block sees
  float eps = 1e-6F;                          // of the norms

  [[nodiscard]] int64_t head_dim() const { return width / heads; }
};

struct AudioTower {
  AudioConfig config;
  ModelWeights weights;
  ClipTable bounds;
};

// The audio tower of a file for a text model of this width, or nothing if the file has none.
// Errors: those of ReadVisionTower.
Result<std::optional<AudioTower>> ReadAudioTower(const GgufFile& file, int64_t text_width);

// Whether the numbers of a conformer go together. Error model.hparam.
Status CheckConformer(const AudioConfig& config);

// Every tensor of such a tower, under the names of llama.cpp.
std::vector<TensorSpec> ExpectedTensors(const AudioConfig& config);

// The linear layers of the blocks, which may be clipped.
std::vector<std::string> BlockLinears(const AudioConfig& config);

}  // namespace rullama::gemma4
