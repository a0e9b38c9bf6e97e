// The tensors of a Gemma 4 text model (models/common/graph/tensor_table.h).
//
// Thread safety: immutable after construction. Errors: kind kModelFile, ids model.*.
#pragma once

#include <rullama/sdk/dtype.h>

#include <functional>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/graph/tensor_table.h"
#include "models/gemma4/graph/config.h"

namespace rullama {

// Every tensor of a model with these hyperparameters, in the order of the forward pass.
std::vector<TensorSpec> ExpectedTensors(const Gemma4Config& config);

class Gemma4Weights : public ModelWeights {
 public:
  Gemma4Weights() = default;

  // Errors: those of ModelWeights::FromFile; model.layer_scale (0, NaN, infinite, or missing on
  // some layers only).
  static Result<Gemma4Weights> FromFile(const Gemma4Config& config, const GgufFile& file,
                                        CheckOptions options);
  static Result<Gemma4Weights> FromFile(const Gemma4Config& config, const GgufFile& file) {
    return FromFile(config, file, CheckOptions());
  }

  static Gemma4Weights Synthetic(const Gemma4Config& config,
                                 const std::function<DType(const TensorSpec&)>& dtype_of);

 private:
  explicit Gemma4Weights(ModelWeights weights) : ModelWeights(std::move(weights)) {}
};

}  // namespace rullama
