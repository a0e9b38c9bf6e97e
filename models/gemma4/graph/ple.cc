// Per-layer embeddings: each layer gets a small vector per token, the sum of a table row and a
// projection of the token's embedding; of an encoder the projection alone.
//
// Layers that own a cache and layers that share one form two groups, each computed with one gather,
// one matmul and one norm. In a prefill step only the wanted rows of the second group are needed,
// often none, and as a value of its own the row-demand pass can shrink it.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "models/gemma4/graph/build_context.h"

namespace rullama::gemma4 {

PerLayerInputs::Group PerLayerInputs::BuildGroup(ModelBuildContext& context, ValueId embedding,
                                                 std::string_view name, int64_t first,
                                                 int64_t count) {
  const Gemma4Config& c = context.config();
  GraphBuilder& b = context.builder();
  const auto named = [name](std::string_view part) { return fmt::format("ple.{}.{}", name, part); };
  const int64_t column = first * c.ple_dim;
  const int64_t columns = count * c.ple_dim;

  ValueId projection = b.Add(
      ops::Linear(embedding, context.WeightRows("per_layer_model_proj.weight", column, columns)),
      named("project"));
  projection = b.Add(
      ops::Affine{
          .x = projection, .scale = 1.0F / std::sqrt(static_cast<float>(c.width)), .bias = 0},
      named("project.scaled"));
  projection = b.Add(ops::ReshapeTo(projection, {count, c.ple_dim}), named("project.layers"));
  projection = b.Add(ops::RmsNorm{.x = projection,
                                  .weight = context.Weight("per_layer_proj_norm.weight"),
                                  .eps = c.rms_eps},
                     named("project.norm"));
  if (c.encodes()) return {.first = first, .count = count, .value = projection};

  ValueId rows = b.Add(ops::GatherRows{.table = context.Weight("per_layer_token_embd.weight"),
                                       .ids = context.model().tokens,
                                       .column = column,
                                       .columns = columns},
                       named("gather"));
  rows = b.Add(ops::Affine{.x = rows, .scale = std::sqrt(static_cast<float>(c.ple_dim)), .bias = 0},
               named("token"));
  rows = b.Add(ops::ReshapeTo(rows, {count, c.ple_dim}), named("token.layers"));

  // The mean of two unit-variance terms times sqrt(2) has unit variance again.
  const ValueId sum = b.Add(ops::Sum(projection, rows), named("sum"));
  return {
      .first = first,
      .count = count,
      .value = b.Add(ops::Affine{.x = sum, .scale = 1.0F / std::numbers::sqrt2_v<float>, .bias = 0},
                     named("inputs"))};
}

void PerLayerInputs::Build(ModelBuildContext& context, ValueId embedding) {
  const Gemma4Config& c = context.config();
  if (c.ple_dim == 0) return;
  const int64_t owned = c.first_shared_layer();
  groups_.push_back(BuildGroup(context, embedding, "owned", 0, owned));
  if (owned < c.layer_count()) {
    groups_.push_back(BuildGroup(context, embedding, "shared", owned, c.layer_count() - owned));
  }
}

ValueId PerLayerInputs::Of(ModelBuildContext& context, int64_t layer) const {
  for (const Group& group : groups_) {
    if (layer >= group.first + group.count) continue;
    const ValueId slice = context.builder().Add(
        ops::Slice{.x = group.value, .axis = 1, .start = layer - group.first, .size = 1},
        fmt::format("blk.{}.ple.slice", layer));
    return context.builder().Add(ops::ReshapeTo(slice, {context.config().ple_dim}),
                                 fmt::format("blk.{}.ple.input", layer));
  }
  return kNoValue;
}

}  // namespace rullama::gemma4
