// Towers that are yet to be written, from the `architecture` block of a configuration. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/status.h"
#include "core/config/config.h"
#include "models/gemma4/towers/audio_tower.h"
#include "models/gemma4/towers/vision_tower.h"

namespace rullama::gemma4 {

struct TowerShapes {
  std::optional<VisionConfig> vision = {};
  std::optional<AudioConfig> audio = {};
  int64_t pool = kDefaultPool;  // of a unified image tower too, as files name it
  // Whether the linear layers of a tower's blocks have bounds.
  bool vision_clipped = false;
  bool audio_clipped = false;
};

// At least one tower. Errors (kUsage): config.missing_key; model.architecture for numbers that do
// not go together.
Result<TowerShapes> TowersFromArchitecture(const ArchitectureConfig& architecture);

}  // namespace rullama::gemma4
