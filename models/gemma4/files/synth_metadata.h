// Metadata of a synthetic Gemma 4 file, under the keys of llama.cpp's converter.
#pragma once

#include <string_view>

#include "core/gguf/gguf_writer.h"
#include "models/gemma4/files/synth.h"

namespace rullama {

// `architecture`: the prefix of the keys.
Status WriteMetadata(const Gemma4Config& config, std::string_view architecture,
                     const SyntheticOptions& options, GgufWriter& writer);

}  // namespace rullama
