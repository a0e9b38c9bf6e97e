// The graph of a tower under construction: its constants, and the layers that all towers have.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ir/builder.h"
#include "models/common/graph/tensor_table.h"
#include "models/common/towers.h"

namespace rullama {

class TowerBuilder {
 public:
  // Borrows the weights. `max_tokens`: the largest T.
  TowerBuilder(std::string_view name, int64_t max_tokens, const ModelWeights& weights);

  [[nodiscard]] GraphBuilder& ops() { return builder_; }

  // A tensor of the table, as it is. One value however often it is asked for.
  ValueId Weight(std::string_view name);
  // The same, or kNoValue if the file has no such tensor.
  ValueId OptionalWeight(std::string_view name);
  // Rows [first, first + rows) of a tensor whose last dimensions are `columns` together.
  ValueId Matrix(std::string_view name, int64_t rows, int64_t columns, int64_t first = 0);
  // An f32 constant that is computed here. `values` fill `type`.
  ValueId Computed(std::string_view name, const TensorType& type, std::span<const float> values);

  // The RMS norm with the weight of this name; without a weight if the name is empty.
  ValueId Norm(ValueId x, std::string_view weight, float eps, std::string_view name);
  // The layer norm with the weight and the bias of LAYER.weight and LAYER.bias.
  ValueId LayerNorm(ValueId x, std::string_view layer, float eps, std::string_view name);
  // The linear layer `layer` ("v.blk.0.attn_q"), f32[rows, outputs], with LAYER.bias if there is
  // such a tensor.
  ValueId Linear(ValueId x, std::string_view layer, std::string_view name);

  // The graph with the output "soft".
  Result<TowerGraph> Finish(ValueId soft) &&;

 private:
  ValueId Constant(std::string_view source, const TensorType& type, int64_t first);

  GraphBuilder builder_;
  const ModelWeights& weights_;
  std::vector<SyntheticConstant> computed_;
  std::map<std::pair<std::string, int64_t>, ValueId> constants_;  // by tensor and first row
};

}  // namespace rullama
