// One answer of a model that denoises: canvas after canvas, each shown when it is finished.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/answer.h"

namespace rullama::cli {

// Does the work of GenerateAnswer, which calls it, for a model that denoises.
Result<Answer> GenerateCanvasAnswer(ModelSession& engine, std::span<const int32_t> prompt,
                                    const AnswerOptions& options, Console& console);

// The record {"type": "step", ...} of --json.
nlohmann::json StepAsJson(int64_t canvas, const CanvasStep& step);

}  // namespace rullama::cli
