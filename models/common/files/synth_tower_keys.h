// Metadata of mmproj files of random weights: the keys that the towers of all families have. Pure
// functions on a writer. Errors: gguf.*.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf_writer.h"
#include "models/common/graph/tensor_table.h"

namespace rullama {

struct TowerKeys {
  std::string_view kind;       // "vision" or "audio"
  std::string_view projector;  // "gemma4v"
  float eps = 0;               // of the norms
  std::span<const std::pair<std::string_view, int64_t>> integers = {};
};
Status WriteTowerKeys(const TowerKeys& keys, GgufWriter& writer);

// The mean and the deviation of each colour.
Status WriteColours(float mean, float deviation, GgufWriter& writer);

// The values of a tower's vector: zeros for a bias, else those of norms.
[[nodiscard]] std::vector<float> TowerVector(const TensorSpec& spec);

}  // namespace rullama
