// Random tiny models: shapes nobody would write by hand, with weights from a hash, so that tests
// and `rullama diff` can compare backends without any file. Everything depends on the seed and on
// names alone.
//
// Thread safety: value types; RandomWeights may be shared once it is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/common/files/random_tensors.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/model.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

// The required properties of a model; all others are drawn at random.
struct RandomModelTraits {
  bool per_layer_embeddings = false;
  bool shared_kv = false;    // trailing layers without a cache of their own
  bool k_eq_v = false;       // global layers use K as V
  bool double_wide = false;  // layers that share a cache have twice the FFN width
  bool experts = false;      // a mixture in addition to the feed-forward
  bool canvas = false;       // denoises (without per-layer embeddings)
  bool quantised = false;    // block types where the shapes allow them, else floats
};
// The traits of model number `seed`: all combinations come up.
[[nodiscard]] RandomModelTraits DrawTraits(uint64_t seed);

struct RandomModel {
  Gemma4Config config;
  Gemma4Weights weights;  // names and types
  uint64_t seed = 0;

  // One line: layers as s (sliding) and g (global), in upper case if they share a cache; widths.
  [[nodiscard]] std::string Describe() const;
};

// A config that passes ValidateConfig and needs a few hundred kilobytes.
RandomModel MakeRandomModel(uint64_t seed, const RandomModelTraits& traits);
inline RandomModel MakeRandomModel(uint64_t seed) {
  return MakeRandomModel(seed, DrawTraits(seed));
}
// The weights for a config that the caller has made.
RandomModel MakeRandomModel(uint64_t seed, const RandomModelTraits& traits, Gemma4Config config);

// The tensors of a random model.
class RandomWeights final : public RandomTensors {
 public:
  RandomWeights(const RandomModel& model, std::vector<SyntheticConstant> constants);
};

}  // namespace rullama
