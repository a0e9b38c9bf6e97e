// The state that the parts of a model's builder share: the graph under construction, its weights
// and its options. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "models/common/graph/tensor_table.h"
#include "models/common/model_graph.h"

namespace rullama {

class GraphContext {
 public:
  GraphContext(const ModelWeights& weights, const BuildOptions& options, ModelGraph& model)
      : weights_(weights), options_(options), model_(model) {}

  [[nodiscard]] const BuildOptions& options() const { return options_; }
  [[nodiscard]] ModelGraph& model() { return model_; }
  [[nodiscard]] GraphBuilder& builder() { return model_.builder; }

  // The constant with a name of the tensor table; one value however often it is asked for. It must
  // be in the table (checked when the weights were).
  ValueId Weight(std::string_view name);
  // Returns kNoValue if the model has no such tensor.
  ValueId OptionalWeight(std::string_view name);
  // Returns rows [first, first + count) of a matrix.
  ValueId WeightRows(std::string_view name, int64_t first, int64_t count);
  // Returns a vector constant with these contents, which is in no file.
  template <typename T>
  ValueId Synthetic(std::string_view name, DType dtype, std::span<const T> values) {
    std::vector<std::byte> bytes(values.size_bytes());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return SyntheticBytes(name, {dtype, {static_cast<int64_t>(values.size())}}, std::move(bytes));
  }
  // The divisors of rotation frequencies: the file's, or else these.
  ValueId RopeFactors(std::span<const float> factors);

 private:
  ValueId Constant(const WeightBinding& binding, int64_t first, int64_t count);
  ValueId SyntheticBytes(std::string_view name, const TensorType& type,
                         std::vector<std::byte> bytes);

  const ModelWeights& weights_;
  const BuildOptions& options_;
  ModelGraph& model_;
  std::map<std::string, ValueId, std::less<>> constants_;  // by tensor and first row
};

// Facts of a model that limit the options of its graphs.
struct GraphLimits {
  int64_t context_length = 0;
  bool denoises = false;
  bool takes_media = false;
  bool encodes = false;
};

// A graph of this name with the inputs of a model and nothing else. Errors (kUsage): model.slots,
// model.capacity, model.rows, model.canvas, model.media, model.encoder, model.kv_dtype.
Result<ModelGraph> BeginModelGraph(std::string_view name, const GraphLimits& limits,
                                   const BuildOptions& options);
// The same without inputs.
Result<ModelGraph> EmptyModelGraph(std::string_view name, const GraphLimits& limits,
                                   const BuildOptions& options);

}  // namespace rullama
