// Conversations as the tokens that a model was trained on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/base/status.h"
#include "engine/loaded_model.h"

namespace rullama {

// The tokens of a conversation, ready for the model's turn, with or without thinking. `messages`
// and `tools` (may be null) are as models/gemma4/chat/template.h takes them. Pure function. Errors:
// chat.*, with chat.markers_missing for models that cannot chat.
Result<std::vector<int32_t>> ChatTokens(const LoadedModel& model, const nlohmann::json& messages,
                                        const nlohmann::json& tools, bool thinking);

// Puts the configured system prompt (generation.system) in front of messages that have none.
void AddSystemPrompt(const Config& config, nlohmann::json& messages);

}  // namespace rullama
