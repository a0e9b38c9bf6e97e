// Which element type each tensor of a quantised Gemma 4 file has: the mixes that llama-quantize
// writes, so that a synthetic file costs a reader what a published one does. Pure functions;
// thread-safe.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "models/gemma4/gemma4_weights.h"

namespace rullama {

struct QuantMix {
  std::string_view name;  // "Q4_K_M"
  uint32_t file_type;     // general.file_type
  DType base;             // most matrices
  DType embedding;        // token and per-layer embedding tables
  DType important;        // attn_v and ffn_down of the layers that count (see MoreBits)
};

// Error synth.type lists the mixes there are.
Result<QuantMix> FindQuantMix(std::string_view name);

// Whether item `index` of `count` gets the better type: the first and last eighth, and every third
// of the rest.
[[nodiscard]] bool MoreBits(int64_t index, int64_t count);

// The type of each tensor, in the order of `specs`.
std::vector<DType> ChooseTypes(const QuantMix& mix, const std::vector<TensorSpec>& specs,
                               int64_t layer_count);

}  // namespace rullama
