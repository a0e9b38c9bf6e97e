// The size of a tower, and the work of a medium in it. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/common/graph/tensor_table.h"
#include "models/common/towers.h"
#include "models/gemma4/towers/audio_tower.h"
#include "models/gemma4/towers/vision_tower.h"

namespace rullama::gemma4 {

[[nodiscard]] TowerFacts FactsOf(const VisionTower& tower);
[[nodiscard]] TowerFacts FactsOf(const AudioTower& tower);

// The multiply-adds of products and attention for `tokens` soft tokens. Norms and other work on
// single values are left out.
[[nodiscard]] double MultiplyAdds(const VisionConfig& config, int64_t tokens);
[[nodiscard]] double MultiplyAdds(const AudioConfig& config, int64_t tokens);

}  // namespace rullama::gemma4
