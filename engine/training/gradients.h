// The gradients of one optimizer step, for files and comparisons.
//
// Thread safety: as the setup. Errors: those of Trainer; io.* of writing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "engine/training/training_setup.h"

namespace rullama {

struct ParameterGradient {
  std::string name;            // "blk.0.attn_q.weight.lora_a"
  std::vector<int64_t> shape;  // [rank, inputs] of A, [outputs, rank] of B
  std::vector<float> values;
};

struct StepGradients {
  LossSum loss;
  std::vector<ParameterGradient> parameters;  // A and B of each weight, in the order of the pairs
};

// The loss of the examples of step `step` and its gradients, of the adapter as it is. The trainer's
// gradients are zero before; nothing is learnt.
Result<StepGradients> GradientsOfStep(TrainingSetup& setup, int64_t step);

// Writes them as a safetensors file.
Status WriteGradients(const StepGradients& gradients, const std::string& path);

}  // namespace rullama
