// Writes the drafter of a model of given shapes with random weights: every tensor, type and key
// that llama.cpp's converter writes, and the clusters of the head that its files lack. Thread
// safety: as WriteSynthetic.
#pragma once

#include <filesystem>

#include "core/base/status.h"
#include "models/common/family.h"
#include "models/gemma4/drafter/drafter_file.h"
#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {

// The shapes of the drafter that is published for a model of these shapes. Error draft.target
// (kUsage) for a model of another width than the published ones, or one that denoises.
Result<DrafterConfig> PublishedDrafter(const Gemma4Config& target);

// Errors: those of WriteSynthetic.
Status WriteSyntheticDrafter(const DrafterConfig& config, const SyntheticOptions& options,
                             const std::filesystem::path& path);

}  // namespace rullama::gemma4
