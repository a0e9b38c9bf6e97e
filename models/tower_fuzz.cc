// Any bytes give towers or an error; towers that were read have well-formed graphs.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "models/registry.h"

namespace rullama {
namespace {

void UseTower(const Tower& tower, int64_t tokens) {
  const TowerFacts facts = tower.facts();
  RL_CHECK(facts.width > 0 && facts.parameters > 0 && !facts.projector.empty());
  RL_CHECK(std::isfinite(tower.MultiplyAdds(tokens)));
  RL_CHECK(tower.BuildGraph(tokens).has_value());
}

}  // namespace
}  // namespace rullama

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kTokens = 70;
  const auto file = rullama::GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  const auto towers = rullama::ReadTowers(*file);
  if (!towers) {
    RL_CHECK(!towers.error().id.empty() && !towers.error().message.empty());
    return 0;
  }
  if (towers->picture) rullama::UseTower(*towers->picture, kTokens);
  if (towers->sound) rullama::UseTower(*towers->sound, kTokens);
  return 0;
}
