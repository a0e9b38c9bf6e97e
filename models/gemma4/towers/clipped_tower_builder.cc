#include "models/gemma4/towers/clipped_tower_builder.h"

#include <fmt/format.h>

namespace rullama::gemma4 {

ValueId ClippedTowerBuilder::Clamp(ValueId x, const ClipRange& range, const std::string& name) {
  if (range.open()) return x;
  return ops().Add(ops::Clamp{.x = x, .lo = range.low, .hi = range.high}, name);
}

ValueId ClippedTowerBuilder::ClippedLinear(ValueId x, std::string_view layer,
                                           std::string_view name) {
  const auto bounds = bounds_.find(layer);
  if (bounds == bounds_.end()) return Linear(x, layer, name);
  x = Clamp(x, bounds->second.input, fmt::format("{}.input", name));
  const bool open = bounds->second.output.open();
  x = Linear(x, layer, open ? std::string(name) : fmt::format("{}.open", name));
  return Clamp(x, bounds->second.output, std::string(name));
}

}  // namespace rullama::gemma4
