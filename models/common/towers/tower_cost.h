// The size of towers, and the work of a picture in an encoder of patches. Pure functions.
#pragma once

#include <cstdint>

#include "models/common/graph/tensor_table.h"
#include "models/common/towers.h"

namespace rullama {

// `facts` with the parameters and bytes of these tensors added.
[[nodiscard]] TowerFacts CountTensors(const ModelWeights& weights, TowerFacts facts);

// The shapes of an encoder of patches, in which all patches see each other.
struct PatchEncoder {
  int64_t layers = 0;
  int64_t width = 0;  // of the residual stream
  int64_t ffn_width = 0;
  int64_t ffn_products = 2;  // matrices of a feed-forward: 3 if it has a gate
  int64_t patch_values = 0;  // numbers of a patch
  int64_t patches_per_token = 0;
  int64_t text_width = 0;
};

// The multiply-adds of products and attention for `tokens` soft tokens. Norms and other work on
// single values are left out.
[[nodiscard]] double MultiplyAdds(const PatchEncoder& encoder, int64_t tokens);

// a b, which may be beyond 64 bits.
[[nodiscard]] inline double Product(int64_t a, int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

}  // namespace rullama
