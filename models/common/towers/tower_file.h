// Where a file keeps a tower. Two kinds of files have them: the "mmproj" file that llama.cpp's
// converter writes next to the text model (general.architecture = clip), and the single file of
// Ollama, a text model with further tensors.
//
// Thread safety: pure functions. Errors: kind kModelFile, ids model.*; gguf.key_*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama {

// Borrows the file.
struct TowerFile {
  const GgufFile* file = nullptr;
  std::string prefix;  // of the keys: "clip.vision." or "gemma4.vision."
  bool ollama = false;
  std::string_view projector = {};  // the kind of network, as mmproj files name it: "gemma4v"

  [[nodiscard]] std::string Key(std::string_view suffix) const {
    return prefix + std::string(suffix);
  }
};

// The names by which mmproj files tell the towers of a family for one kind of media.
struct ProjectorNames {
  std::string_view key;                          // part of the keys: "vision"
  std::string_view has;                          // the key that says whether a file has the tower
  std::span<const std::string_view> projectors;  // kinds of networks
  std::string_view family;                       // for messages: "Gemma 4"
};

// Whether a file has towers alone.
[[nodiscard]] Result<bool> IsProjectorFile(const GgufFile& file);

// The tower of a file of towers alone, or nothing if it has none. Error model.projector: the file
// names a projector of another family.
Result<std::optional<TowerFile>> FindInProjectorFile(const GgufFile& file,
                                                     const ProjectorNames& names);

// A tensor that a tower cannot be without; `expected` says what it is. Error model.missing_tensor.
Result<const TensorInfo*> TowerTensor(const GgufFile& file, std::string_view name,
                                      std::string_view expected);

// A key that holds a number from `low` to `high`; `otherwise` is what the number is if the file has
// no such key. Error model.hparam.
Result<int64_t> TowerNumber(const TowerFile& tower, std::string_view suffix, int64_t low,
                            int64_t high, std::optional<int64_t> otherwise = {});

// The epsilon of a tower's norms.
Result<float> TowerEps(const TowerFile& tower);

// A tensor whose rows become soft tokens, and its dimension (fastest first) of the text model's
// width.
struct Projector {
  std::string_view tensor;
  size_t axis = 1;
};

// The width of the text model that the tower was made for, which is that of the projector and,
// where the file has it, the key projection_dim. Error model.tower if it is not `text_width`: a
// common mistake is a tower file of another size of the model.
Status CheckProjection(const TowerFile& tower, const Projector& projector, int64_t text_width);

// The width of the projector's rows; nothing if the file has no such tensor. Error
// model.tensor_shape.
Result<std::optional<int64_t>> ProjectedWidth(const GgufFile& file, const Projector& projector);

}  // namespace rullama
