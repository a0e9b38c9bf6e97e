#include "models/common/model_graph.h"

#include <fmt/format.h>

namespace rullama {

std::string ToString(const CacheTypes& types) {
  if (types.keys == types.values) return std::string(NameOf(types.keys));
  return fmt::format("{} for keys, {} for values", NameOf(types.keys), NameOf(types.values));
}

void AppendSelfConditioning(ModelGraph& model, ValueId logits, ValueId inverse_temperature) {
  GraphBuilder& b = model.builder;
  const ModelGraph::Canvas& canvas = model.canvas;
  const ValueId soft = b.Add(
      ops::SoftEmbed{
          .logits = logits, .inverse_temperature = inverse_temperature, .table = canvas.embeddings},
      "canvas.soft_embedding.rows");
  // The state is one place for each row of the canvas: any position is that place.
  b.Add(
      ops::StateAppend{
          .state = canvas.soft_embedding, .rows = soft, .pos = canvas.row, .slot = canvas.row},
      "canvas.soft_embedding.next");
}

void AddLogitsOutput(GraphBuilder& builder, ValueId logits, RowDemand demand) {
  builder.Output("logits", logits, demand);
}

}  // namespace rullama
