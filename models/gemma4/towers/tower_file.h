// Where a file keeps an image or audio tower. Two kinds of files have them: the "mmproj" file that
// llama.cpp's converter writes next to the text model (general.architecture = clip), and the single
// file of Ollama, a text model with further tensors.
//
// Thread safety: pure functions. Errors: kind kModelFile, ids model.*; gguf.key_*.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama::gemma4 {

enum class TowerKind : uint8_t { kVision, kAudio };

// The last tensor of each tower, which makes rows of the text model's width.
inline constexpr std::string_view kVisionProjector = "mm.input_projection.weight";
inline constexpr std::string_view kAudioProjector = "mm.a.input_projection.weight";

// Borrows the file.
struct TowerFile {
  const GgufFile* file = nullptr;
  std::string prefix;  // of the keys: "clip.vision." or "gemma4.vision."
  bool ollama = false;
  // The network: an encoder with layers, or raw pixels and samples that are only projected.
  bool unified = false;

  [[nodiscard]] std::string Key(std::string_view suffix) const {
    return prefix + std::string(suffix);
  }
};

// The kind of network, as files name it: "gemma4v".
[[nodiscard]] std::string_view ProjectorName(TowerKind kind, bool unified);

// The tower of this kind in a file, or nothing if it has none. Error model.projector: the file
// names a projector of another model.
Result<std::optional<TowerFile>> FindTower(const GgufFile& file, TowerKind kind);

// A tensor that a tower cannot be without; `expected` says what it is. Error model.missing_tensor.
Result<const TensorInfo*> TowerTensor(const GgufFile& file, std::string_view name,
                                      std::string_view expected);

// A key that holds a number from `low` to `high`; `otherwise` is what the number is if the file has
// no such key. Error model.hparam.
Result<int64_t> TowerNumber(const TowerFile& tower, std::string_view suffix, int64_t low,
                            int64_t high, std::optional<int64_t> otherwise = {});

// The epsilon of a tower's RMS norms.
Result<float> TowerEps(const TowerFile& tower);

// The width of the text model that the tower was made for, which is the last dimension of the
// projector's tensor and, where the file has it, the key projection_dim. Error model.tower if it is
// not `text_width`: a common mistake is a tower file of another size of the model.
Status CheckProjection(const TowerFile& tower, std::string_view projector, int64_t text_width);

}  // namespace rullama::gemma4
