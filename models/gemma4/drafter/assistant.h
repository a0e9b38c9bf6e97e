// Implements the interface of all families for the assistants of Gemma 4.
#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/assistant.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama::gemma4 {

// What the drafter of a file is, whatever model it was made for. Errors: those of ReadDrafter.
Result<AssistantFacts> DescribeAssistant(const GgufFile& file, AssistantOrigin origin);

// The assistant of a file for this model. Errors: those of ReadDrafter; draft.target (the model
// denoises), draft.width, draft.vocabulary (their sizes differ), draft.heads, draft.layers,
// draft.window (kUsage) for one that was made for another model.
Result<std::unique_ptr<Assistant>> ReadAssistant(const GgufFile& file, AssistantOrigin origin,
                                                 const Gemma4Config& target,
                                                 const Gemma4Weights& target_weights);

}  // namespace rullama::gemma4
