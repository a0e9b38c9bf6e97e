// The image tower as a graph of ops, and a picture as its inputs.
//
// Inputs, for T soft tokens of n = pool^2 patches each, the patches of a token one after another:
//   patches     f32[n T, 3 patch^2]  pixels from 0 to 1, ordered channel, row, column
//   patch       i32[n T]             place of a patch in the picture, row by row
//   patch.slot  i32[n T]             0
// Value names that tests rely on: "blk.N.out" of each layer, f32[n T, width].
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "media/picture.h"
#include "models/common/towers.h"
#include "models/gemma3/towers/vision_tower.h"

namespace rullama::gemma3 {

// The graph for pictures of up to `max_tokens` soft tokens. `tower` was read from a file, so the
// graph is well formed; errors are those of GraphBuilder.
Result<TowerGraph> BuildVisionGraph(const VisionTower& tower, int64_t max_tokens);

// The inputs of the graph for a picture of the tower's size.
TowerStep PictureInputs(const VisionConfig& config, const Picture& picture);

}  // namespace rullama::gemma3
