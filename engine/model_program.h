// The program of a session: the graphs of a model, with the outputs that a command needs. Pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/model.h"
#include "models/gemma4/graph/weights.h"
#include "samplers/settings.h"

namespace rullama {

enum class GraphOutputs {
  kText,       // what generating needs: the sampled token and the sum that tells NaN logits, or the
               // graphs of CanvasGraph with the sampler of a model that denoises
  kAllLogits,  // the logits of every row; of a model that denoises, those of a canvas
};

struct ModelProgramOptions {
  GraphOutputs outputs = GraphOutputs::kText;
  // Used with kText only; `diffusion` is for a model that denoises, `sampler` for all others.
  const SamplerSettings* sampler = nullptr;
  const EntropyBoundSettings* diffusion = nullptr;
  int64_t capacity = 0;  // tokens per slot
  DType kv_dtype = DType::kF16;
  StepLimits limits = {.max_rows = 1};  // of a step of the causal pass
};

struct ModelProgram {
  std::vector<SessionGraph> graphs;  // of a model that denoises: by CanvasGraph
  std::vector<SyntheticConstant> constants;
  std::vector<std::pair<std::string, std::vector<std::byte>>> inputs;  // to be set once
};

// The settings for denoising that the model file recommends.
EntropyBoundSettings RecommendedBy(const Gemma4Canvas& canvas);

// Errors: of BuildModel and of the samplers; context.overflow if the canvas is longer than the
// context.
Result<ModelProgram> BuildModelProgram(const Gemma4Config& gemma, const Gemma4Weights& weights,
                                       const ModelProgramOptions& options);

}  // namespace rullama
