// Renders a conversation as the prompt that TranslateGemma was trained on: each text of a user with
// the languages that it is to be translated from and into.
//
// A user's message has one part with the members `source_lang_code` and `target_lang_code`, or it
// is a text in the form <<<source>>>en<<<target>>>de<<<text>>>..., or a text that is a whole
// instruction ("You are a professional ..."). There is no language that a request gets by default.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "core/base/status.h"
#include "models/common/chat/prompt.h"
#include "models/gemma3/chat/template.h"

namespace rullama::gemma3 {

// `messages` are those of chat::CheckMessages. Errors (kUsage), each naming the place: those of
// CheckMessages; chat.messages (roles that do not alternate), chat.content (several parts, media,
// languages that are missing or have no name), chat.tools (any).
Result<chat::ChatPrompt> RenderTranslation(const nlohmann::json& messages,
                                           const nlohmann::json& tools, const ChatOptions& options);

}  // namespace rullama::gemma3
