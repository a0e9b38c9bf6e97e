// The logits of a canvas in one denoising pass: for comparing implementations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/commands/loading.h"

namespace rullama::cli {

struct CanvasScore {
  std::span<const int32_t> prefix;  // tokens before the canvas
  std::span<const int32_t> canvas;  // as many as the model's canvas has
  // Logits of an earlier step, [canvas, vocabulary], and its temperature; empty: none.
  std::span<const float> previous;
  float temperature = 1;
};

// f32 [canvas, vocabulary]. `engine` was opened with GraphOutputs::kAllLogits. Errors:
// model.canvas, usage.canvas, context.overflow, tokenizer.id, backend.nan.
Result<std::vector<float>> CanvasLogits(ModelSession& engine, const CanvasScore& score);

}  // namespace rullama::cli
