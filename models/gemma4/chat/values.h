// JSON values and function declarations in the syntax of Gemma 4's tool markers.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/status.h"
#include "models/common/chat/prompt.h"

namespace rullama::gemma4 {

// Calls and responses write keys bare; values inside declarations quote them.
enum class KeyStyle { kBare, kQuoted };

// {k:v,...}, [a,b], <|"|>text<|"|>, true, null, 1.5. Keys are sorted ignoring (ASCII) case.
void WriteValue(const nlohmann::json& value, KeyStyle keys, chat::PromptWriter& out);

// Writes the k:v,... of an object, without braces, keys bare.
void WriteMembers(const nlohmann::json& object, chat::PromptWriter& out);

// declaration:NAME{...} of one entry of `tools` ({"type": "function", "function": {...}}).
// Error chat.tools (kUsage) naming the place, which begins with `path`.
Status WriteDeclaration(const nlohmann::json& tool, std::string_view path, chat::PromptWriter& out);

}  // namespace rullama::gemma4
