// The bounds of clipped linear layers (Gemma4ClippableLinear of transformers): y = clamp(W clamp(x,
// input), output). A file keeps them as four scalars next to the weight, or in one table.
//
// Thread safety: immutable once read. Errors: model.clip_bounds (kModelFile).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama::gemma4 {

struct ClipRange {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();

  // Whether values pass unchanged.
  [[nodiscard]] bool open() const {
    return low <= std::numeric_limits<float>::lowest() && high >= std::numeric_limits<float>::max();
  }
  friend bool operator==(const ClipRange&, const ClipRange&) = default;
};

struct ClipBounds {
  ClipRange input;
  ClipRange output;
};

// The bounds of linear layers, by name: "v.blk.0.attn_q". A layer that is not in it is not clipped.
using ClipTable = std::map<std::string, ClipBounds, std::less<>>;

// The names of the linear layers of `blocks` blocks: `prefix` ("v.blk."), the block, and each of
// `linears`, in this order.
std::vector<std::string> LayersOfBlocks(std::string_view prefix, int64_t blocks,
                                        std::span<const std::string_view> linears);

// Reads the bounds of these layers. `table`: the name of a tensor with four numbers for each layer
// in this order (Ollama's v.clamp_data), empty if the format has none. Scalars of a layer replace
// those of the table.
Result<ClipTable> ReadClipBounds(const GgufFile& file, std::span<const std::string> layers,
                                 std::string_view table);

}  // namespace rullama::gemma4
