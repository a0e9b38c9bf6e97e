// Per-layer embeddings: each layer gets a small vector per token, the sum of a table row and a
// projection of the token's embedding.
//
// Layers that own a cache and layers that share one form two groups, each computed with one gather,
// one matmul and one norm. In a prefill step only the wanted rows of the second group are needed,
// often none, and as a value of its own the row-demand pass can shrink it.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "models/gemma4/gemma4_scope.h"

namespace rullama::gemma4 {

PerLayerInputs::Group PerLayerInputs::BuildGroup(Scope& scope, ValueId embedding,
                                                 std::string_view name, int64_t first,
                                                 int64_t count) {
  const Gemma4Config& c = scope.config();
  GraphBuilder& b = scope.builder();
  const auto named = [name](std::string_view part) { return fmt::format("ple.{}.{}", name, part); };
  const int64_t column = first * c.ple_dim;
  const int64_t columns = count * c.ple_dim;

  ValueId rows = b.GatherRows(scope.Weight("per_layer_token_embd.weight"), scope.model().tokens,
                              named("gather"), column, columns);
  rows = b.Affine(rows, std::sqrt(static_cast<float>(c.ple_dim)), 0, named("token"));
  rows = b.Reshape(rows, {count, c.ple_dim}, named("token.layers"));

  ValueId projection =
      b.MatMul(embedding, scope.WeightRows("per_layer_model_proj.weight", column, columns),
               named("project"));
  projection = b.Affine(projection, 1.0F / std::sqrt(static_cast<float>(c.width)), 0,
                        named("project.scaled"));
  projection = b.Reshape(projection, {count, c.ple_dim}, named("project.layers"));
  projection = b.RmsNorm(projection, scope.Weight("per_layer_proj_norm.weight"), c.rms_eps,
                         named("project.norm"));

  // The mean of two unit-variance terms times sqrt(2) has unit variance again.
  const ValueId sum = b.Add(projection, rows, named("sum"));
  return {.first = first,
          .count = count,
          .value = b.Affine(sum, 1.0F / std::numbers::sqrt2_v<float>, 0, named("inputs"))};
}

void PerLayerInputs::Build(Scope& scope, ValueId embedding) {
  const Gemma4Config& c = scope.config();
  if (c.ple_dim == 0) return;
  const int64_t owned = c.first_shared_layer();
  groups_.push_back(BuildGroup(scope, embedding, "owned", 0, owned));
  if (owned < c.layer_count()) {
    groups_.push_back(BuildGroup(scope, embedding, "shared", owned, c.layer_count() - owned));
  }
}

ValueId PerLayerInputs::Of(Scope& scope, int64_t layer) const {
  for (const Group& group : groups_) {
    if (layer >= group.first + group.count) continue;
    const ValueId slice = scope.builder().Slice(group.value, 1, layer - group.first, 1,
                                                fmt::format("blk.{}.ple.slice", layer));
    return scope.builder().Reshape(slice, {scope.config().ple_dim},
                                   fmt::format("blk.{}.ple.input", layer));
  }
  return kNoValue;
}

}  // namespace rullama::gemma4
