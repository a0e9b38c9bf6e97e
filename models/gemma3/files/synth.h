// Writes Gemma 3 models of random weights. Thread safety: files may be written on several threads,
// with different paths.
#pragma once

#include <filesystem>

#include "core/base/status.h"
#include "models/common/family.h"
#include "models/gemma3/graph/config.h"

namespace rullama {

// Errors: those of WriteSyntheticFile; synth.vocabulary.
Status WriteSynthetic(const Gemma3Config& config, const SyntheticOptions& options,
                      const std::filesystem::path& path);

}  // namespace rullama
