// The parts of the model builder and the state that they share. Internal to models/gemma4/graph.
// Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/graph/decoder_parts.h"
#include "models/gemma4/graph/model.h"

namespace rullama::gemma4 {

class ModelBuildContext : public GraphContext {
 public:
  ModelBuildContext(const Gemma4Config& config, const Gemma4Weights& weights,
                    const BuildOptions& options, ModelGraph& model)
      : GraphContext(weights, options, model), config_(config) {}

  [[nodiscard]] const Gemma4Config& config() const { return config_; }
  [[nodiscard]] bool canvas() const { return options().pass == ModelPass::kCanvas; }
  [[nodiscard]] bool media() const {
    return options().pass == ModelPass::kMedia || options().pass == ModelPass::kEncodeMedia;
  }
  // The last position that each row sees on sliding layers, i32[T]; none: its own.
  [[nodiscard]] ValueId last_seen() const { return last_seen_; }
  void set_last_seen(ValueId value) { last_seen_ = value; }

 private:
  const Gemma4Config& config_;
  ValueId last_seen_ = kNoValue;
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
  struct Cache : LayerCache {
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
  ValueId MixtureOfExperts(int64_t index, ValueId hidden, ValueId dense);
  ValueId FeedForward(int64_t index, ValueId hidden, ValueId scale);
  // Applies the norm per head, then the rotation, to q or k.
  ValueId Rotate(int64_t index, ValueId heads, std::string_view norm, std::string name);

  ModelBuildContext& context_;
  std::map<int64_t, Cache> caches_;  // by owning layer
};

}  // namespace rullama::gemma4
