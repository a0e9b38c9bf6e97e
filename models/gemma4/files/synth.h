// Writes a Gemma 4 model of given shapes with random weights: every tensor, type and metadata key
// that a converted and quantised file has, so that its speed and memory are those of the real
// thing. Thread safety: WriteSynthetic may run on several threads with different paths.
#pragma once

#include <filesystem>

#include "core/base/status.h"
#include "models/common/family.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

// Errors: synth.vocabulary (too small, or of another size than the config's), io.same_file,
// run.cancelled, gguf.* and io.* of the writer.
Status WriteSynthetic(const Gemma4Config& config, const SyntheticOptions& options,
                      const std::filesystem::path& path);

}  // namespace rullama
