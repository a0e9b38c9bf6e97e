// The graph of a tower under construction: its constants, and the layers that both towers have.
// Internal to models/gemma4/towers. Not thread-safe.
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
#include "models/gemma4/towers/clip_bounds.h"

namespace rullama::gemma4 {

class TowerBuilder {
 public:
  // Borrows weights and bounds. `max_tokens`: the largest T.
  TowerBuilder(std::string_view name, int64_t max_tokens, const ModelWeights& weights,
               const ClipTable& bounds);

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
  // The linear layer `layer` ("v.blk.0.attn_q"), clipped if it has bounds: f32[rows, outputs].
  ValueId Linear(ValueId x, std::string_view layer, std::string_view name);
  // Whether a linear layer is clipped.
  [[nodiscard]] bool clipped(std::string_view layer) const { return bounds_.contains(layer); }

  // The graph with the output "soft".
  Result<TowerGraph> Finish(ValueId soft) &&;

 private:
  ValueId Constant(std::string_view source, const TensorType& type, int64_t first);
  ValueId Clamp(ValueId x, const ClipRange& range, const std::string& name);

  GraphBuilder builder_;
  const ModelWeights& weights_;
  const ClipTable& bounds_;
  std::vector<SyntheticConstant> computed_;
  std::map<std::pair<std::string, int64_t>, ValueId> constants_;  // by tensor and first row
};

}  // namespace rullama::gemma4
