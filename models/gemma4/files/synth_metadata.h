// Metadata of a synthetic Gemma 4 file, under the keys of llama.cpp's converter.
#pragma once

#include "core/gguf/gguf_writer.h"
#include "models/gemma4/files/synth.h"

namespace rullama {

Status WriteMetadata(const Gemma4Config& config, const SyntheticOptions& options,
                     GgufWriter& writer);

}  // namespace rullama
