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

  ValueId rows = b.Add(ops::GatherRows{.table = scope.Weight("per_layer_token_embd.weight"),
                                       .ids = scope.model().tokens,
                                       .column = column,
                                       .columns = columns},
                       named("gather"));
  rows = b.Add(ops::Affine{.x = rows, .scale = std::sqrt(static_cast<float>(c.ple_dim)), .bias = 0},
               named("token"));
  rows = b.Add(ops::ReshapeTo(rows, {count, c.ple_dim}), named("token.layers"));

  ValueId projection = b.Add(
      ops::Linear(embedding, scope.WeightRows("per_layer_model_proj.weight", column, columns)),
      named("project"));
  projection = b.Add(
      ops::Affine{
          .x = projection, .scale = 1.0F / std::sqrt(static_cast<float>(c.width)), .bias = 0},
      named("project.scaled"));
  projection = b.Add(ops::ReshapeTo(projection, {count, c.ple_dim}), named("project.layers"));
  projection = b.Add(
      ops::RmsNorm{
          .x = projection, .weight = scope.Weight("per_layer_proj_norm.weight"), .eps = c.rms_eps},
      named("project.norm"));

  // The mean of two unit-variance terms times sqrt(2) has unit variance again.
  const ValueId sum = b.Add(ops::Sum(projection, rows), named("sum"));
  return {
      .first = first,
      .count = count,
      .value = b.Add(ops::Affine{.x = sum, .scale = 1.0F / std::numbers::sqrt2_v<float>, .bias = 0},
                     named("inputs"))};
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
    const ValueId slice = scope.builder().Add(
        ops::Slice{.x = group.value, .axis = 1, .start = layer - group.first, .size = 1},
        fmt::format("blk.{}.ple.slice", layer));
    return scope.builder().Add(ops::ReshapeTo(slice, {scope.config().ple_dim}),
                               fmt::format("blk.{}.ple.input", layer));
  }
  return kNoValue;
}

}  // namespace rullama::gemma4
