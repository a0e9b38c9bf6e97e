// The weights of the norms of queries and keys, for caches whose keys are in blocks.
//
// A key that is rounded to a block type gets an error of the same size in all dimensions, because
// heads are rotated first (core/passes/rotate_caches.h): a share of the key's length. A score sees
// it times the length of the query. Scores stay if each dimension of the keys is multiplied by a
// factor that the same dimension of the queries is divided by, so the factors may be those that
// make the product of both lengths least. The two dimensions that the position encoding turns into
// each other share a factor.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/graph/tensor_table.h"
#include "models/gemma3/graph/config.h"

namespace rullama {

// Of one layer; head_dim weights each.
struct HeadNorms {
  std::vector<float> queries, keys;
};

// Norms that give the same scores, with the least error of keys in blocks. A pair of dimensions
// whose weights are zero on one side becomes zero on both.
[[nodiscard]] HeadNorms Balanced(const HeadNorms& norms);

// The balanced norms of each layer; none of an encoder, which has no cache. Errors: io.read.
[[nodiscard]] Result<std::vector<HeadNorms>> ReadBalancedNorms(const Gemma3Config& config,
                                                               const ModelWeights& weights,
                                                               const GgufFile& file);

}  // namespace rullama
