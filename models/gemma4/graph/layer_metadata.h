// The metadata that the files of text models and of their drafters have in common: dimensions, the
// shapes of layers and their rotary embedding.
//
// Thread safety: pure functions. Errors: model.hparam, model.array_length, and gguf.key_* for
// missing or mistyped metadata (kModelFile).
#pragma once

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {

// Reads widths, heads, window, epsilon and soft-cap, and makes room for the layers.
Status ReadDimensions(const GgufFile& file, Gemma4Config& config);

// Reads kind, head dim and FFN width of each layer, for which there is room.
Status ReadLayerShapes(const GgufFile& file, Gemma4Config& config);

// Reads the rotary embedding, after the shapes of the layers.
Status ReadRope(const GgufFile& file, Gemma4Config& config);

}  // namespace rullama::gemma4
