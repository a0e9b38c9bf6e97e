// Random tiny models: shapes nobody would write by hand, with weights from a hash, so that tests
// and `rullama diff` can compare backends without any file. Everything depends on the seed and on
// names alone.
//
// Thread safety: value types; RandomWeights may be shared once it is made.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/weights.h"
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
  bool experts = false;      // a mixture beside the feed-forward
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

// Tensors of a random model, made on first use: matrices with a spread that keeps activations near
// 1, norm weights near 1. Not thread-safe before every tensor was asked for once.
class RandomWeights final : public WeightSource {
 public:
  RandomWeights(const RandomModel& model, std::vector<SyntheticConstant> constants);
  // Error model.missing_tensor.
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override;

 private:
  std::map<std::string, WeightBinding, std::less<>> tensors_;
  std::vector<float> rope_factors_;
  uint64_t seed_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> made_;
};

}  // namespace rullama
