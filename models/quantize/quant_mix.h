// The element type of each tensor of a quantised file, in the mixes that llama-quantize writes. One
// set of rules for files that are quantised and for synthetic ones. Pure functions; thread-safe.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama {

struct QuantMix {
  std::string_view name;  // "Q4_K_M"
  uint32_t file_type;     // general.file_type
  DType base;             // most matrices
  DType embedding;        // token and per-layer embedding tables
  DType important;        // attn_v and ffn_down of the layers that count, of most mixes (MoreBits)
};

// Finds a mix by name, in upper or lower case. Error quantize.type lists the mixes there are.
Result<QuantMix> FindQuantMix(std::string_view name);

// Names of the mixes, separated by commas, for messages.
[[nodiscard]] std::string QuantMixNames();

// Whether item `index` of `count` gets the better type: the first and last eighth, and every third
// of the rest.
[[nodiscard]] bool MoreBits(int64_t index, int64_t count);

// The properties of a tensor that the rules depend on.
struct QuantTensor {
  std::string_view name;
  uint32_t rank = 1;
  uint64_t row = 0;  // elements of the fastest dimension
};

// What the rules depend on besides names and shapes.
struct NetworkFacts {
  int64_t layers = 0;
  int64_t experts = 0;       // 0 for dense models
  int64_t heads_per_kv = 1;  // query heads of a key and value head, in the first layer
};

// The type of each tensor; nothing for those that stay as they are: vectors, the router, the
// projection to the per-layer embeddings, image and audio towers.
std::vector<std::optional<DType>> ChooseTypes(const QuantMix& mix,
                                              std::span<const QuantTensor> tensors,
                                              const NetworkFacts& network);

// The same for an mmproj file, which holds towers and no text model. Vectors, the product of
// patches, position tables, convolutions and the product after them stay as they are.
std::vector<std::optional<DType>> ChooseTowerTypes(const QuantMix& mix,
                                                   std::span<const QuantTensor> tensors);

}  // namespace rullama
