// Implements the interface of all families for the assistants of Gemma 4.
#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/assistant.h"
#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {

// The assistant of a file, for whatever model it was made for. Errors: those of ReadDrafter.
Result<std::unique_ptr<Assistant>> ReadAssistant(const GgufFile& file, AssistantOrigin origin);

// The assistant of a file for this model. Errors: those of ReadDrafter; draft.target (the model
// denoises), draft.width, draft.vocabulary (their sizes differ), draft.heads, draft.layers,
// draft.window (kUsage) for one that was made for another model.
Result<std::unique_ptr<Assistant>> ReadAssistant(const GgufFile& file, AssistantOrigin origin,
                                                 const Gemma4Config& target);

}  // namespace rullama::gemma4
