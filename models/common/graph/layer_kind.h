// The two kinds of attention layers.
#pragma once

#include <cstdint>

namespace rullama {

// The attention of a layer: over the last `sliding_window` tokens, or over all of them.
enum class LayerKind : uint8_t { kSliding, kGlobal };

}  // namespace rullama
