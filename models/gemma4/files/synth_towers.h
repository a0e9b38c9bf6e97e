// Writes an mmproj file of given shapes with random weights: every tensor, type and key that
// llama.cpp's converter writes. Thread safety: as WriteSynthetic.
#pragma once

#include <filesystem>

#include "core/base/status.h"
#include "models/common/family.h"
#include "models/gemma4/towers/tower_shapes.h"

namespace rullama::gemma4 {

// Matrices are bf16 if that is the mix of `options`, else f16: converters write no smaller type.
// Errors: io.same_file, run.cancelled, gguf.* and io.* of the writer.
Status WriteSyntheticTowers(const TowerShapes& towers, const SyntheticOptions& options,
                            const std::filesystem::path& path);

}  // namespace rullama::gemma4
