// The graph of a tower whose linear layers may be clipped. Internal to models/gemma4/towers. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/common/towers/tower_builder.h"
#include "models/gemma4/towers/clip_bounds.h"

namespace rullama::gemma4 {

class ClippedTowerBuilder : public TowerBuilder {
 public:
  // Borrows weights and bounds. `max_tokens`: the largest T.
  ClippedTowerBuilder(std::string_view name, int64_t max_tokens, const ModelWeights& weights,
                      const ClipTable& bounds)
      : TowerBuilder(name, max_tokens, weights), bounds_(bounds) {}

  // Linear(), clipped if it has bounds.
  ValueId ClippedLinear(ValueId x, std::string_view layer, std::string_view name);
  // Whether a linear layer is clipped.
  [[nodiscard]] bool clipped(std::string_view layer) const { return bounds_.contains(layer); }

 private:
  ValueId Clamp(ValueId x, const ClipRange& range, const std::string& name);

  const ClipTable& bounds_;
};

}  // namespace rullama::gemma4
