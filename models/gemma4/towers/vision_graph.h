// The image tower as a graph of ops, and a picture as its inputs.
//
// Inputs, for T soft tokens of n = pool^2 patches each, the patches of a token one after another:
//   patches     f32[n T, 3 patch^2]  pixels from 0 to 1, ordered channel, row, column
//   patch.x     i32[n T]             column of a patch in the picture
//   patch.y     i32[n T]             its row
//   patch.slot  i32[n T]             0; of the encoder only
// Value names that tests rely on: "embd", and "blk.N.out" of each layer, f32[n T, width].
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "media/picture.h"
#include "models/common/towers.h"
#include "models/gemma4/towers/vision_tower.h"

namespace rullama::gemma4 {

// The graph for pictures of up to `max_tokens` soft tokens. `tower` was read from a file, so the
// graph is well formed; errors are those of GraphBuilder.
Result<TowerGraph> BuildVisionGraph(const VisionTower& tower, int64_t max_tokens);

// The squares that a picture of these sides is resampled to. Error media.shape: the picture is too
// long for the budget, or for the position tables.
Result<BlockGrid> FitPicture(const VisionConfig& config, uint32_t width, uint32_t height,
                             uint32_t budget);

// The inputs of the graph for a picture whose sides are those of a grid of squares.
TowerStep PictureInputs(const VisionConfig& config, const Picture& picture);

}  // namespace rullama::gemma4
