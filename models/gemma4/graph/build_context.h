// The state that the parts of the model builder share: the graph under construction and its
// weights. Internal to models/gemma4/graph. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/gemma4/graph/model.h"

namespace rullama::gemma4 {

class ModelBuildContext {
 public:
  ModelBuildContext(const Gemma4Config& config, const Gemma4Weights& weights,
                    const BuildOptions& options, ModelGraph& model)
      : config_(config), weights_(weights), options_(options), model_(model) {}

  [[nodiscard]] const Gemma4Config& config() const { return config_; }
  [[nodiscard]] const BuildOptions& options() const { return options_; }
  [[nodiscard]] bool canvas() const { return options_.pass == ModelPass::kCanvas; }
  [[nodiscard]] ModelGraph& model() { return model_; }
  [[nodiscard]] GraphBuilder& builder() { return model_.builder; }

  // The constant behind a name of the tensor table; one value however often it is asked for. It
  // must be in the table (checked when the weights were).
  ValueId Weight(std::string_view name);
  // Returns kNoValue if the model has no such tensor.
  ValueId OptionalWeight(std::string_view name);
  // Returns rows [first, first + count) of a matrix.
  ValueId WeightRows(std::string_view name, int64_t first, int64_t count);
  // Returns a constant with these contents, which is in no file.
  ValueId Synthetic(std::string_view name, const TensorType& type, std::vector<std::byte> bytes);
  // Divisors of the rotation frequencies of global layers.
  ValueId RopeFactors();

 private:
  ValueId Constant(const WeightBinding& binding, int64_t first, int64_t count);

  const Gemma4Config& config_;
  const Gemma4Weights& weights_;
  const BuildOptions& options_;
  ModelGraph& model_;
  std::map<std::string, ValueId, std::less<>> constants_;  // by tensor and first row
};

// The per-layer inputs of PLE models.
class PerLayerInputs {
 public:
  // `embedding`: the scaled embedding, f32[T, width]. Does nothing for models without PLE.
  void Build(ModelBuildContext& context, ValueId embedding);
  // f32[T, ple_dim] for one layer, kNoValue without PLE.
  ValueId Of(ModelBuildContext& context, int64_t layer) const;

 private:
  // Layers [first, first + count) as one value f32[T, count, ple_dim].
  struct Group {
    int64_t first = 0;
    int64_t count = 0;
    ValueId value = kNoValue;
  };
  static Group BuildGroup(ModelBuildContext& context, ValueId embedding, std::string_view name,
                          int64_t first, int64_t count);
  std::vector<Group> groups_;
};

// The decoder layers, in order.
class LayerStack {
 public:
  explicit LayerStack(ModelBuildContext& context);
  // Returns the residual stream after layer `index`, from that before it.
  ValueId Build(int64_t index, ValueId hidden, ValueId per_layer_input);

 private:
  struct Cache {
    ValueId k_state = kNoValue;
    ValueId v_state = kNoValue;
    ValueId k_new = kNoValue;  // this step's rows, in the number format of the cache
    ValueId v_new = kNoValue;
    int64_t last_reader = 0;  // the last layer whose attention reads it
  };

  ValueId Queries(int64_t index, ValueId x);
  void FillCache(int64_t index, ValueId x);
  ValueId Attention(int64_t index, ValueId hidden);
  void AppendCache(int64_t index);
  // The experts that each row has selected and their weights: [rows, used].
  struct Routes {
    ValueId weights = kNoValue;
    ValueId experts = kNoValue;
  };
  Routes Route(int64_t index, ValueId hidden);
  ValueId DenseFeedForward(int64_t index, ValueId hidden);
  ValueId MixtureOfExperts(int64_t index, ValueId hidden, ValueId dense);
  ValueId FeedForward(int64_t index, ValueId hidden, ValueId scale);
  // Applies the norm per head, then the rotation, to q or k.
  ValueId NormAndRotate(int64_t index, ValueId heads, std::string_view norm, std::string_view name);
  [[nodiscard]] std::string Name(int64_t index, std::string_view suffix) const;

  ModelBuildContext& context_;
  std::map<int64_t, Cache> caches_;  // by owning layer
};

}  // namespace rullama::gemma4
