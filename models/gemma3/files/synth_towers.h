// Files of an image tower with random weights, as llama.cpp's converter writes them.
//
// Thread safety: files may be written on several threads, with different paths.
#pragma once

#include <filesystem>

#include "core/base/status.h"
#include "core/config/config.h"
#include "models/common/family.h"
#include "models/gemma3/towers/vision_tower.h"

namespace rullama::gemma3 {

// The tower of a configuration. Errors (kUsage): config.missing_key; model.architecture for numbers
// that do not go together, and for parts that a tower of this family has not.
Result<VisionConfig> VisionFromArchitecture(const ArchitectureConfig& architecture);

// Errors: io.same_file, run.cancelled, gguf.* and io.* of the writer.
Status WriteSyntheticTowers(const VisionConfig& config, const SyntheticOptions& options,
                            const std::filesystem::path& path);

}  // namespace rullama::gemma3
