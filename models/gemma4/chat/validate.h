// Whether a conversation has the shape that rendering relies on.
#pragma once

#include <nlohmann/json.hpp>

#include "core/base/status.h"

namespace rullama::gemma4 {

// Errors: those of RenderChat except chat.tools.
Status CheckMessages(const nlohmann::json& messages);

// The call's arguments as an object: given as one, as null or absent (then empty), or as a string
// that holds one. Error chat.tool_call, chat.json or chat.depth, naming `path`.
Result<nlohmann::json> CallArguments(const nlohmann::json& function, const std::string& path);

}  // namespace rullama::gemma4
