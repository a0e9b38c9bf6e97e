// The tensors of a Gemma 3 text model. Thread safety: pure functions.
#pragma once

#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/graph/tensor_table.h"
#include "models/gemma3/graph/config.h"

namespace rullama {

// Every tensor of a model with these hyperparameters, in the order of the forward pass.
std::vector<TensorSpec> ExpectedTensors(const Gemma3Config& config);

// The tensors of a file. Errors: those of ModelWeights::FromFile.
Result<ModelWeights> ReadGemma3Weights(const Gemma3Config& config, const GgufFile& file);

}  // namespace rullama
