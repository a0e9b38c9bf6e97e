// Renders a conversation as the prompt that FunctionGemma was trained on: instructions and
// declarations of functions are a developer's turn; calls and their results stand in the model's
// turn, which continues after them.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "core/base/status.h"
#include "models/common/chat.h"
#include "models/common/chat/prompt.h"
#include "models/gemma3/chat/template.h"

namespace rullama::gemma3 {

// `messages` are those of chat::CheckMessages; `tools` may be null. Errors (kUsage), each naming
// the place: those of CheckMessages; chat.content (media), chat.tools, chat.tool_result (calls
// without a result before the next message), chat.escape.
Result<chat::ChatPrompt> RenderFunctionChat(const nlohmann::json& messages,
                                            const nlohmann::json& tools,
                                            const ChatOptions& options);

}  // namespace rullama::gemma3
