// The system prompt that the configuration adds to conversations.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/config/config.h"

namespace rullama {

// Puts the configured system prompt (generation.system) before messages that have none.
void AddSystemPrompt(const Config& config, nlohmann::json& messages);

}  // namespace rullama
