// JSON values and function declarations in the notation of FunctionGemma. Strings stand between
// <escape> marks without any escaping inside, keys are bare and sorted without case, and there is
// no white space.
//
// Thread safety: pure functions. Errors (kUsage): chat.escape for a string that contains <escape>,
// which the notation cannot express; chat.tools for a declaration of another form. Both name the
// place, which begins with `path`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/status.h"
#include "models/common/chat/prompt.h"

namespace rullama::gemma3 {

// Writes the k:v,... of an object, without braces.
Status WriteMembers(const nlohmann::json& object, const std::string& path, chat::PromptWriter& out);

Status WriteValue(const nlohmann::json& value, const std::string& path, chat::PromptWriter& out);

// declaration:NAME{...} of one entry of `tools` ({"type": "function", "function": {...}}).
Status WriteDeclaration(const nlohmann::json& tool, const std::string& path,
                        chat::PromptWriter& out);

}  // namespace rullama::gemma3
