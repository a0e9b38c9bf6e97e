#include "models/common/towers/tower_cost.h"

#include <rullama/sdk/dtype.h>

namespace rullama {

TowerFacts CountTensors(const ModelWeights& weights, TowerFacts facts) {
  for (const auto& [name, binding] : weights.bindings()) {
    uint64_t elements = 1;
    for (const int64_t dim : binding.dims) elements *= static_cast<uint64_t>(dim);
    facts.parameters += elements;
    facts.bytes += RowBytes(binding.dtype, elements);
  }
  return facts;
}

double MultiplyAdds(const PatchEncoder& e, int64_t tokens) {
  const int64_t patches = tokens * e.patches_per_token;
  const double of_layer = 4 * Product(e.width, e.width) +
                          static_cast<double>(e.ffn_products) * Product(e.width, e.ffn_width) +
                          2 * Product(patches, e.width);
  const double of_patch =
      Product(e.patch_values, e.width) + static_cast<double>(e.layers) * of_layer;
  return static_cast<double>(patches) * of_patch +
         static_cast<double>(tokens) * Product(e.width, e.text_width);
}

}  // namespace rullama
